// about: threads of different real-time priorities on one CPU: what spins for a lock of one that it keeps from running never ends
// alone
// root
#include "../c/check.h"
#include <pthread.h>
#include <sys/wait.h>

static atomic_bool stop;

static void *load(void *priority)
{
    struct sched_param how = {.sched_priority = (int)(uintptr_t)priority};
    if (sched_setscheduler(0, SCHED_FIFO, &how)) {
        puts("skipped: no SCHED_FIFO");
        exit(SKIPPED);
    }
    static _Thread_local Held held;
    while (!stop) {
        churn(&held, 40);
        /* The lower ones run while the higher ones sleep, and are interrupted anywhere. */
        if ((uintptr_t)priority > 1)
            usleep(50);
    }
    churn_end(&held);
    return NULL;
}

int main(void)
{
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    Random random = {1};
    hop(0, &allowed, &random);
    pthread_t thread[4];
    struct sched_param how = {.sched_priority = 20};
    sched_setscheduler(0, SCHED_FIFO, &how);
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(!pthread_create(&thread[i], NULL, load, (void *)(1 + i)));
    for (int i = 0; i < 20; i++) {
        usleep(20000);
        pid_t child = fork();
        if (!child)
            _exit(0);
        CHECK(waitpid(child, NULL, 0) == child);
    }
    stop = true;
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    puts("ok");
}
