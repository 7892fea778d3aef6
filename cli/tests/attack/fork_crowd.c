// about: 200 threads fork at once and wait for a stream's lock: the fork after as many as could be in flight kept the others from ending
// flags: -pthread -D_GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 200, MANY = 2000 };
static _Atomic int is_inside, begun, wrong;

static void *forks(void *none) {
    while (!is_inside)
        usleep(100);
    begun++;
    pid_t child = fork();
    if (!child) {
        free(malloc(100));
        _exit(0);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status)
        wrong++;
    return none;
}

static ssize_t writes(void *none, const char *bytes, size_t count) {
    is_inside = 1;
    while (begun < FORKS)
        usleep(1000);
    // (Each fork has told the heap, and waits for the list of streams, which who flushes all of them has.)
    usleep(200000);
    // Meanwhile others go on.
    for (int at = 1; at < MANY; at++) {
        char *block = malloc(at * 10);
        if (!block)
            wrong++;
        else
            memset(block, at, at * 10);
        free(block);
    }
    return count;
}

int main(void) {
    static char buffer[4096];
    FILE *stream = fopencookie(0, "w", (cookie_io_functions_t){.write = writes});
    setvbuf(stream, buffer, _IOFBF, sizeof buffer);
    fputs("x", stream);
    pthread_t thread[FORKS];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (int at = 0; at < FORKS; at++)
        if (pthread_create(&thread[at], &small, forks, 0))
            return 1;
    fflush(NULL);
    for (int at = 0; at < FORKS; at++)
        pthread_join(thread[at], 0);
    puts(wrong ? "wrong" : "ok");
}
