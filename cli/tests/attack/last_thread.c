// about: main leaves by pthread_exit and the process ends with its last thread, whether the keeper runs or not
// args: 100
// args: 1
#include "../c/check.h"
#include <pthread.h>

static void at_exit(void) { say("at exit\n"); }

static void *last(void *mib)
{
    size_t size = (size_t)mib << 20;
    free(memset(malloc(size), 1, size));
    for (int i = 0; i < 1000; i++) {
        void *block = memset(malloc(40000), 1, 40000);
        if (i % 2)
            free(block);
    }
    usleep(300000);
    say("the last thread ends\n");
    return NULL;
}

int main(int argc, char **argv)
{
    atexit(at_exit);
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, last, (void *)atol(argv[1])));
    pthread_detach(thread);
    pthread_exit(NULL);
}
