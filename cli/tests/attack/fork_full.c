// about: no address space is left, half of the heap is free: what malloc asks for beside a fork is there, behind it
// limit: -s 512
// limit: -v 100000
// flags: -pthread
// args: 1000
// args: 20000
// args: 100000
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static _Atomic int is_full, is_over;

static void *forks(void *none) {
    while (!is_full)
        usleep(100);
    for (int at = 0; at < 200; at++) {
        pid_t child = fork();
        if (!child)
            _exit(0);
        if (child > 0)
            waitpid(child, 0, 0);
    }
    is_over = 1;
    return none;
}

int main(int count, char **args) {
    size_t size = count > 1 ? atol(args[1]) : 1000;
    enum { MOST = 1 << 17 };
    static char *blocks[MOST];
    pthread_t thread;
    if (pthread_create(&thread, 0, forks, 0))
        return 1;
    long had = 0, nulls = 0;
    while (had < MOST && (blocks[had] = malloc(size)))
        memset(blocks[had++], 1, 16);
    for (long at = 0; at < had; at += 2) {
        free(blocks[at]);
        blocks[at] = 0;
    }
    is_full = 1;
    while (!is_over) {
        char *block = malloc(size);
        nulls += !block;
        if (block)
            memset(block, 2, size);
        free(block);
    }
    pthread_join(thread, 0);
    for (long at = 1; at < had; at += 2)
        if (blocks[at][0] != 1 || blocks[at][15] != 1)
            return 2;
    puts(nulls ? "refused" : "ok");
}
