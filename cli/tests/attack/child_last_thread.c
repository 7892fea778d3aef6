// about: the child of a thread's fork works like any process and ends with its last thread
// args: small
// args: large
#include "../c/check.h"
#include <pthread.h>
#include <sys/wait.h>

static const char *size;

static void *idle(void *none)
{
    usleep(100000);
    return none;
}

static void *forks(void *none)
{
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (!child) {
            static Held held;
            pthread_t thread;
            churn(&held, 1000);
            if (!strcmp(size, "large"))
                free(memset(malloc(64 << 20), 1, 64 << 20));
            CHECK(!pthread_create(&thread, NULL, idle, NULL));
            churn(&held, 1000);
            churn_end(&held);
            pthread_exit(NULL);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(!status, "status %#x", status);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    size = argv[1];
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, forks, NULL));
    pthread_join(thread, NULL);
    say("ok\n");
    _exit(0);
}
