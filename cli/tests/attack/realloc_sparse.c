// about: large blocks of which one page in 37 is touched became resident as a whole when realloc copied them: beside forks, and where they had grown over another mapping
// args: 0 3 40
// args: 1 2 16
// conf: huge_bytes=0
// alone
//
// Arguments: whether to fork beside, threads, rounds. glibc has 20 MiB at most with one thread, 57 with three.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEP = 512 * 37, MOST = 256 };

static volatile int ended, rounds, wrong;

static void *work(void *argument) {
    unsigned seed = (long)argument;
    uint64_t *block = 0;
    size_t bytes = 0;
    for (int round = 0; round < rounds; round++) {
        size_t then = (rand_r(&seed) % 7 + 1) * 100ul << 20;
        uint64_t *moved = realloc(block, then);
        if (!moved) {
            wrong = 1;
            break;
        }
        for (size_t at = 0; at < (bytes < then ? bytes : then) / 8; at += STEP)
            wrong |= moved[at] != (at + 1) * (long)argument;
        for (size_t at = 0; at < then / 8; at += STEP)
            moved[at] = (at + 1) * (long)argument;
        block = moved;
        bytes = then;
    }
    free(block);
    __sync_fetch_and_add(&ended, 1);
    return 0;
}

int main(int count, char **argument) {
    (void)count;
    int forks = atoi(argument[1]), threads = atoi(argument[2]);
    rounds = atoi(argument[3]);
    pthread_t thread[8];
    for (long at = 0; at < threads; at++)
        pthread_create(&thread[at], 0, work, (void *)(at + 3));
    while (ended < threads) {
        if (forks) {
            pid_t child = fork();
            if (!child)
                _exit(0);
            waitpid(child, 0, 0);
        }
        usleep(10000);
    }
    for (int at = 0; at < threads; at++)
        pthread_join(thread[at], 0);
    char line[400];
    long peak = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file))
        sscanf(line, "VmHWM: %ld", &peak);
    if (peak >> 10 > MOST)
        printf("%ld MiB at most\n", peak >> 10);
    printf("%s\n", wrong ? "wrong bytes" : "done");
}
