// about: exec by a thread that is not the first, beside threads that allocate, again and again
#include "../c/check.h"
#include <pthread.h>

static char **words;

static void *load(void *none)
{
    static _Thread_local Held held;
    for (;;)
        churn(&held, 100);
}

static void *executes(void *none)
{
    char left[16];
    usleep(5000);
    snprintf(left, sizeof left, "%d", (words[1] ? atoi(words[1]) : 10) - 1);
    char *next[] = {words[0], left, NULL};
    execv("/proc/self/exe", next);
    _exit(9);
}

int main(int argc, char **argv)
{
    words = argv;
    if (argc > 1 && atoi(argv[1]) == 0) {
        puts("ok");
        return 3;
    }
    pthread_t thread;
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&thread, NULL, load, NULL));
    CHECK(!pthread_create(&thread, NULL, executes, NULL));
    load(NULL);
}
