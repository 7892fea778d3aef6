// about: threads that come to a CPU anew, in processes that have just begun: a set follows its index to a CPU that has none, behind a fence of the CPU where it was
/* Threads that come to a CPU anew all the time, in processes that have just begun: each block is its owner's. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, PROCESSES = 60, HOPS = 60, HELD = 24 };
extern char **environ;
static int cpus[64], many;

static void go(unsigned *seed) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus[rand_r(seed) % many], &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void *work(void *number) {
    unsigned seed = 7 * (unsigned)(size_t)number + (unsigned)getpid();
    unsigned char *held[HELD] = {0};
    size_t bytes[HELD] = {0};
    for (int hop = 0; hop < HOPS; hop++) {
        go(&seed);
        for (int k = 0; k < 200; k++) {
            int at = rand_r(&seed) % HELD;
            unsigned char mark = (unsigned char)((size_t)number * 31 + (size_t)at);
            for (size_t byte = 0; held[at] && byte < bytes[at]; byte++)
                if (held[at][byte] != mark) {
                    fprintf(stderr, "byte %zu of %zu is %d and not %d\n", byte, bytes[at], held[at][byte], mark);
                    _exit(1);
                }
            free(held[at]);
            bytes[at] = 16 + (size_t)(rand_r(&seed) % 4) * 16;
            held[at] = malloc(bytes[at]);
            memset(held[at], mark, bytes[at]);
        }
        /* (Or else each CPU has a set for good as soon as two threads have run at once.) */
        if (hop % 4 == 0) nanosleep(&(struct timespec){0, 30000}, NULL);
    }
    for (int at = 0; at < HELD; at++) free(held[at]);
    return NULL;
}

int main(int argc, char **argv) {
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    for (int cpu = 0; cpu < CPU_SETSIZE && many < 64; cpu++)
        if (CPU_ISSET(cpu, &all)) cpus[many++] = cpu;
    if (argc > 1) {
        pthread_t threads[THREADS];
        for (size_t n = 0; n < THREADS; n++)
            if (pthread_create(&threads[n], NULL, work, (void *)(n + 1))) return 2;
        for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
        return 0;
    }
    for (int round = 0; round < PROCESSES; round++) {
        pid_t child;
        char *words[] = {argv[0], "child", NULL};
        int status;
        if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ)) return 2;
        if (waitpid(child, &status, 0) != child || status) return 1;
    }
    puts("each block was its owner's");
    return 0;
}
