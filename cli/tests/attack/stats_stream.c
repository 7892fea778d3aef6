// about: malloc_stats wrote to file descriptor 2, past what the program had put in place of its stderr; then it ended a thread that was to be cancelled
#include "../c/check.h"
#include <malloc.h>
#include <pthread.h>

static void *tells(void *nothing)
{
    pthread_cancel(pthread_self());
    malloc_stats();
    return stderr;
}

int main(void)
{
    static char text[4096];
    FILE *mine = tmpfile(), *before = stderr;
    CHECK(mine);
    stderr = mine;
    pthread_t thread;
    void *returned;
    CHECK(!pthread_create(&thread, NULL, tells, NULL) && !pthread_join(thread, &returned));
    stderr = before;
    rewind(mine);
    text[fread(text, 1, sizeof text - 1, mine)] = 0;
    puts(strstr(text, "in use bytes") ? "told" : "nothing");
    puts(returned == mine ? "went on" : "was cancelled");
    return 0;
}
