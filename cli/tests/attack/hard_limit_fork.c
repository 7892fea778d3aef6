// about: the hard limit was passed (202 MiB, 553-719 beside forks): nobody counted what the side arena gives while a fork is in flight
// conf: hard_limit=200M
// alone
// own-errors
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, BLOCKS = 200, LIMIT = 200, FORKS = 20 };

static volatile int ends;
static volatile long had;

static void *work(void *argument) {
    static __thread char *block[BLOCKS];
    unsigned seed = (long)argument * 77;
    while (!ends) {
        int at = rand_r(&seed) % BLOCKS;
        free(block[at]);
        block[at] = 0;
        if (rand_r(&seed) % 4) {
            size_t bytes = (1 + rand_r(&seed) % 16) << 20;
            block[at] = malloc(bytes);
            if (block[at]) {
                memset(block[at], 1, bytes);
                __sync_fetch_and_add(&had, 1);
            }
        }
    }
    return 0;
}

int main(void) {
    // Without the limit there is nothing to see.
    void *volatile more = malloc((LIMIT + 1l) << 20);
    if (more) {
        puts("done");
        return 0;
    }
    pthread_t thread[THREADS];
    for (long at = 0; at < THREADS; at++)
        pthread_create(&thread[at], 0, work, (void *)at);
    for (int n = 0; n < FORKS; n++) {
        pid_t child = fork();
        if (!child)
            _exit(0);
        waitpid(child, 0, 0);
        usleep(10000);
    }
    ends = 1;
    for (int at = 0; at < THREADS; at++)
        pthread_join(thread[at], 0);
    char line[400];
    long peak = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file))
        sscanf(line, "VmHWM: %ld", &peak);
    if (peak >> 10 > LIMIT + 8)
        printf("%ld MiB at most\n", peak >> 10);
    puts(had > FORKS ? "done" : "refused");
}
