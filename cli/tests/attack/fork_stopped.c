// about: _Fork, which handlers may call, while all other threads are held in a handler, some in the middle of an allocation (crash reporters, collectors)
#include "../c/check.h"
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

#define THREADS 4
static sem_t seen;
static volatile int stopped, generation, ends;

static void stop(int signal)
{
    int kept = errno, mine = generation;
    sigset_t wait;
    sigfillset(&wait);
    sigdelset(&wait, SIGUSR2);
    sem_post(&seen);
    while (stopped && mine == generation)
        sigsuspend(&wait);
    sem_post(&seen);
    errno = kept;
}
static void go_on(int signal) {}

static void *load(void *number)
{
    static _Thread_local void *held[500];
    Random random = {(uintptr_t)number};
    while (!ends) {
        uint64_t dice = next(&random);
        free(held[dice % 500]);
        held[dice % 500] = malloc((dice >> 20) % 2000 + 1);
    }
    return NULL;
}

static void await(void)
{
    for (int at = 0; at < THREADS; at++)
        while (sem_wait(&seen))
            ;
}

int main(void)
{
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    CHECK(!sem_init(&seen, 0, 0) && !sigaction(SIGUSR1, &action, NULL));
    action.sa_handler = go_on;
    CHECK(!sigaction(SIGUSR2, &action, NULL));
    for (uintptr_t at = 0; at < THREADS; at++)
        CHECK(!pthread_create(&threads[at], NULL, load, (void *)(at + 1)));
    for (int round = 0; round < 20; round++) {
        usleep(500 + round * 150);
        stopped = 1;
        for (int at = 0; at < THREADS; at++)
            pthread_kill(threads[at], SIGUSR1);
        await();
        pid_t child = _Fork();
        CHECK(child >= 0);
        if (!child)
            _exit(3);
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
        stopped = 0;
        generation++;
        for (int at = 0; at < THREADS; at++)
            pthread_kill(threads[at], SIGUSR2);
        await();
    }
    ends = 1;
    for (int at = 0; at < THREADS; at++)
        CHECK(!pthread_join(threads[at], NULL));
    say("ok\n");
    return 0;
}
