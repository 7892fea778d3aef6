// about: real-time threads of two priorities on one CPU: whoever spins for the other never ends
// root
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 400, BLOCKS = 64 };

static atomic_int done;

static void *work(void *priority_given)
{
    int priority = (int)(size_t)priority_given;
    unsigned seed = (unsigned)priority;
    struct sched_param parameter = {.sched_priority = priority};
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) || sched_setscheduler(0, SCHED_FIFO, &parameter)) {
        perror("no real-time priority");
        _exit(0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        void *block[BLOCKS];
        for (int at = 0; at < BLOCKS; at++) {
            size_t size = 1 + rand_r(&seed) % (at % 16 ? 2000 : 300000);
            block[at] = malloc(size);
            memset(block[at], at, size < 64 ? size : 64);
        }
        /* The urgent one comes back in the midst of what the other does. */
        if (priority > 1)
            nanosleep(&(struct timespec){.tv_nsec = 20000 + rand_r(&seed) % 100000}, NULL);
        for (int at = 0; at < BLOCKS; at++)
            free(block[at]);
        if (round % 8 == 0)
            malloc_trim(0);
    }
    atomic_fetch_add(&done, 1);
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    for (size_t at = 0; at < 3; at++)
        pthread_create(&threads[at], NULL, work, (void *)(at + 1));
    for (size_t at = 0; at < 3; at++)
        pthread_join(threads[at], NULL);
    puts(done == 3 ? "ok" : "lost");
    return 0;
}
