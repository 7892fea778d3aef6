// about: a process that dies by a signal, in whichever thread, dies by that signal
// args: abort
// args: fault
// args: kill
// args: terminate
// args: trap
#include "../c/check.h"
#include <pthread.h>

static const char *way;

static void *load(void *none)
{
    static _Thread_local Held held;
    for (;;)
        churn(&held, 100);
}

static void *dies(void *none)
{
    usleep(20000);
    if (!strcmp(way, "abort"))
        abort();
    if (!strcmp(way, "fault"))
        *(volatile int *)8 = 1;
    if (!strcmp(way, "trap"))
        __builtin_trap();
    kill(getpid(), !strcmp(way, "kill") ? SIGKILL : SIGTERM);
    return none;
}

int main(int argc, char **argv)
{
    way = argv[1];
    signal(SIGTERM, SIG_DFL);
    pthread_t thread;
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&thread, NULL, load, NULL));
    free(memset(malloc(40 << 20), 1, 40 << 20));
    say("about to die\n");
    CHECK(!pthread_create(&thread, NULL, dies, NULL));
    load(NULL);
}
