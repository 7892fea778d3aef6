// about: a child by vfork allocates, frees what its parent had and leaves blocks behind, beside threads
#include "../c/check.h"
#include <pthread.h>
#include <sys/wait.h>

static atomic_bool stop;
static Held held;

static void *load(void *none)
{
    static _Thread_local Held own;
    while (!stop)
        churn(&own, 100);
    churn_end(&own);
    return NULL;
}

int main(void)
{
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&thread[i], NULL, load, NULL));
    for (int i = 0; i < 40; i++) {
        churn(&held, 500);
        pid_t child = vfork();
        if (!child) {
            churn(&held, 1000);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && !status, "status %#x", status);
    }
    stop = true;
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    churn_end(&held);
    puts("ok");
}
