// about: memory is exhausted and freed while the main thread forks: without memory to note it, what was freed was lost
// limit: -s 256
// limit: -v 43000
// flags: -pthread
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void **blocks;
static _Atomic int busy;

static void *free_all(void *none) {
    for (;;) {
        while (!busy)
            usleep(100);
        while (blocks) {
            void **block = blocks;
            blocks = *block;
            free(block);
        }
        busy = 0;
    }
    return none;
}

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, 0, free_all, 0))
        return 1;
    long first = 0, had = 0;
    for (int round = 0; round < 12; round++) {
        void **block;
        for (had = 0; (block = malloc(1000)); had++) {
            *block = blocks;
            blocks = block;
        }
        if (!round)
            first = had;
        busy = 1;
        while (busy) {
            pid_t child = fork();
            if (!child)
                _exit(0);
            if (child > 0)
                waitpid(child, 0, 0);
        }
    }
    // (Beside forks some memory is taken from elsewhere, for good.)
    puts(had > first - first / 8 ? "ok" : "lost");
}
