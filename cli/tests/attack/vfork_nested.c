// about: children by vfork that are killed, that start others by vfork or fork, or do not get their program, in two threads beside others
#include "../c/check.h"
#include <pthread.h>
#include <sys/wait.h>

static atomic_bool stop;

static void *load(void *none)
{
    static _Thread_local Held held;
    while (!stop)
        churn(&held, 100);
    churn_end(&held);
    return NULL;
}

static void *starts(void *none)
{
    static _Thread_local Held held;
    for (int i = 0; i < 40; i++) {
        churn(&held, 200);
        pid_t child = vfork();
        if (!child) {
            if (i % 4 == 0)
                kill(getpid(), SIGKILL);
            if (i % 4 == 1) {
                pid_t inner = vfork();
                if (!inner)
                    _exit(0);
                waitpid(inner, NULL, 0);
            }
            if (i % 4 == 2) {
                char *words[] = {"none", NULL};
                execv("/no/such/program", words);
            }
            if (i % 4 == 3) {
                char *words[] = {"true", NULL};
                execv("/bin/true", words);
            }
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(status == (i % 4 ? 0 : SIGKILL), "status %#x", status);
    }
    churn_end(&held);
    return NULL;
}

int main(void)
{
    pthread_t loads[2], thread[2];
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&loads[i], NULL, load, NULL) && !pthread_create(&thread[i], NULL, starts, NULL));
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(loads[i], NULL);
    puts("ok");
}
