// about: threads that are cancelled, with handlers that free and allocate, beside threads that allocate and forks
#include "../c/check.h"
#include <pthread.h>
#include <sys/wait.h>

static atomic_bool stop;
static atomic_int cleaned;

static void *load(void *none)
{
    static _Thread_local Held held;
    while (!stop)
        churn(&held, 100);
    churn_end(&held);
    return NULL;
}

static void clean(void *held)
{
    churn(held, 50);
    churn_end(held);
    free(held);
    cleaned++;
}

static void *cancelled(void *pipe)
{
    Held *held = calloc(1, sizeof *held);
    pthread_cleanup_push(clean, held);
    for (int i = 0;; i++) {
        churn(held, 20);
        pthread_testcancel();
        if (i == 3) {
            char byte;
            read(*(int *)pipe, &byte, 1);
        }
    }
    pthread_cleanup_pop(1);
    return NULL;
}

int main(void)
{
    int ends[2];
    CHECK(!pipe(ends));
    pthread_t loads[2], thread[8];
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&loads[i], NULL, load, NULL));
    for (int round = 0; round < 25; round++) {
        for (int i = 0; i < 8; i++)
            CHECK(!pthread_create(&thread[i], NULL, cancelled, &ends[0]));
        if (round % 5 == 0) {
            pid_t child = fork();
            if (!child)
                _exit(0);
            waitpid(child, NULL, 0);
        }
        for (int i = 0; i < 8; i++)
            pthread_cancel(thread[i]);
        for (int i = 0; i < 8; i++) {
            void *result;
            pthread_join(thread[i], &result);
            CHECK(result == PTHREAD_CANCELED);
        }
    }
    stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(loads[i], NULL);
    printf("%d\n", (int)cleaned);
}
