// about: no memory is left for a note, and a fork waits for a stream whose writer frees: each free waited for the fork, then lost its block
// limit: -s 512
// limit: -v 100000
// flags: -pthread -D_GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 2000, MOST = 1 << 14 };
static void *blocks[MOST];
static _Atomic int is_inside, is_forking;

// Small blocks and large ones in turn.
static void *take(long at) {
    return malloc(at % 2 ? 10000 : 20000);
}

static void *forks(void *none) {
    while (!is_inside)
        usleep(100);
    is_forking = 1;
    pid_t child = fork();
    if (!child)
        _exit(0);
    if (child > 0)
        waitpid(child, 0, 0);
    return none;
}

static ssize_t writes(void *none, const char *bytes, size_t count) {
    is_inside = 1;
    while (!is_forking)
        usleep(100);
    // (The fork has taken the heap and waits for the list of streams, which who flushes all of them has.)
    usleep(100000);
    for (int at = 0; at < MANY; at++)
        free(blocks[at]);
    return count;
}

int main(void) {
    FILE *stream = fopencookie(0, "w", (cookie_io_functions_t){.write = writes});
    static char buffer[4096];
    setvbuf(stream, buffer, _IOFBF, sizeof buffer);
    fputs("x", stream);
    pthread_t thread;
    if (pthread_create(&thread, 0, forks, 0))
        return 1;
    long had = 0, again = 0;
    while (had < MOST && (blocks[had] = take(had)))
        had++;
    while (malloc(100))
        ;
    if (had < MANY)
        return 2;
    fflush(NULL);
    pthread_join(thread, 0);
    while (again < MANY && take(again))
        again++;
    puts(again >= MANY - MANY / 20 ? "ok" : "lost");
}
