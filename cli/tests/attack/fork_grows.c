// about: what was freed beside a fork was not used again: where it waited for its CPU, or for a stream's lock, or never ended, memory ran out
#include "../c/check.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static atomic_int stop;

/* What it has at a time is bounded: 32 blocks that come and go, and 400 of which it exchanges one after each thousand of these. */
static void exchange(unsigned random, long rounds)
{
    char *some[32] = {0}, *others[400] = {0};
    for (long round = 0; round < rounds && !stop; round++) {
        random = random * 1664525 + 1013904223;
        char **at = round % 1000 ? &some[(random >> 10) & 31] : &others[(random >> 8) % 400];
        free(*at);
        size_t bytes = 100 + ((random >> 16) & 1023);
        *at = malloc(bytes);
        CHECK(*at);
        memset(*at, 1, bytes);
    }
    for (int at = 0; at < 32; at++)
        free(some[at]);
    for (int at = 0; at < 400; at++)
        free(others[at]);
}

static void *worker(void *number)
{
    exchange((unsigned)(uintptr_t)number + 1, 1L << 60);
    return NULL;
}

static long peak(int whose)
{
    struct rusage usage;
    CHECK(!getrusage(whose, &usage));
    return usage.ru_maxrss >> 10;
}

static void *flusher(void *unused)
{
    (void)unused;
    fflush(NULL);
    return NULL;
}

static void fork_once(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child)
        _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && !status);
}

static void *forker(void *unused)
{
    (void)unused;
    fork_once();
    return NULL;
}

/* A fork waits for the lock of the list of streams, which a thread has that flushes into a full pipe. */
static void blocked(void)
{
    int pipes[2];
    CHECK(!pipe(pipes));
    static char bytes[1 << 16];
    FILE *stream = fdopen(pipes[1], "w");
    CHECK(stream && !setvbuf(stream, malloc(1 << 20), _IOFBF, 1 << 20));
    for (int at = 0; at < 3; at++)
        CHECK(fwrite(bytes, sizeof bytes, 1, stream) == 1);
    pthread_t threads[4];
    CHECK(!pthread_create(&threads[0], NULL, flusher, NULL));
    usleep(100000);
    CHECK(!pthread_create(&threads[1], NULL, forker, NULL));
    usleep(100000);
    for (uintptr_t at = 2; at < 4; at++)
        CHECK(!pthread_create(&threads[at], NULL, worker, (void *)at));
    usleep(1000000);
    CHECK(!fcntl(pipes[0], F_SETFL, O_NONBLOCK));
    for (int at = 0; at < 20; at++, usleep(10000))
        while (read(pipes[0], bytes, sizeof bytes) > 0)
            ;
    stop = 1;
    for (int at = 0; at < 4; at++)
        CHECK(!pthread_join(threads[at], NULL));
    stop = 0;
    CHECK(peak(RUSAGE_SELF) < 60);
}

/* A fork waits for its CPU. */
static void busy(void)
{
    pthread_t threads[12];
    for (uintptr_t at = 0; at < 12; at++)
        CHECK(!pthread_create(&threads[at], NULL, worker, (void *)at));
    for (int at = 0; at < 12; at++) {
        fork_once();
        usleep(20000);
    }
    /* Children that are made by a raw call beside them: some come into the world torn. */
    for (int at = 0; at < 6; at++) {
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        CHECK(child >= 0);
        if (!child) {
            alarm(60);
            exchange(1, 300000);
            _exit(peak(RUSAGE_SELF) < 120 ? 0 : 3);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && !status);
    }
    stop = 1;
    for (int at = 0; at < 12; at++)
        CHECK(!pthread_join(threads[at], NULL));
    CHECK(peak(RUSAGE_SELF) < 120);
}

int main(void)
{
    blocked();
    busy();
    return 0;
}
