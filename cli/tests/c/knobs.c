/* What knobs change, in numbers: the measurements of docs/tuning.md. Each case prints names and values in one line;
 * sizes are small without arguments, so that the case is a test, too. Passes on plain glibc. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)
static int argc_;
static char **argv_;

static size_t argument(int at, size_t otherwise)
{
    return argc_ > at + 1 ? strtoul(argv_[at + 1], NULL, 10) : otherwise;
}

/* KiB: resident now, and the most so far. */
static size_t status(const char *what)
{
    char text[4096] = "";
    int file = open("/proc/self/status", O_RDONLY);
    CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0);
    close(file);
    char *line = strstr(text, what);
    return line ? strtoul(line + strlen(what) + 1, NULL, 10) : 0;
}
static size_t resident(void) { return status("VmRSS:") >> 10; }

static size_t mappings(void)
{
    static char text[1 << 16];
    size_t lines = 0;
    ssize_t got;
    int file = open("/proc/self/maps", O_RDONLY);
    CHECK(file >= 0);
    while ((got = read(file, text, sizeof text)) > 0)
        for (ssize_t at = 0; at < got; at++)
            lines += text[at] == '\n';
    close(file);
    return lines;
}

/* areas PAIRS: random sizes of 64 KiB to 6.4 MiB, a page in four touched, 32 live; 32 MiB in use beside them. */
static void areas(void)
{
    size_t pairs = argument(1, 500);
    static void *live[32];
    Random random = {1};
    void *base = malloc(32 * MIB);
    memset(base, 1, 32 * MIB);
    long before = page_faults();
    double start = now();
    for (size_t pair = 0; pair < pairs; pair++) {
        void **slot = &live[next(&random) % 32];
        size_t size = (64 << 10) + next(&random) % (6400 << 10);
        free(*slot);
        CHECK(*slot = malloc(size));
        for (size_t at = 0; at < size; at += 16384)
            ((volatile char *)*slot)[at] = 1;
    }
    double time = now() - start;
    printf("us_per_pair %.2f faults_per_pair %.1f peak_mib %zu\n", time / pairs * 1e6, (double)(page_faults() - before) / pairs,
           status("VmHWM:") >> 10);
    for (int at = 0; at < 32; at++)
        free(live[at]);
    free(base);
}

/* large MIB: one block, touched and freed; then what is resident at once, and how long until it has gone. */
static void large(void)
{
    size_t bytes = argument(1, 8) * MIB, before = resident();
    double start = now();
    char *block = malloc(bytes);
    CHECK(block);
    touch_pages(block, bytes);
    double touched = now(), freed, gone;
    free(block);
    freed = now();
    size_t after = resident();
    for (gone = now(); resident() > before + 4 + bytes / MIB / 100 && gone < freed + 3; gone = now())
        usleep(200);
    printf("touch_ms %.1f free_ms %.2f left_mib %zu gone_ms %.1f\n", (touched - start) * 1e3, (freed - touched) * 1e3,
           after > before ? after - before : 0, (gone - touched) * 1e3);
}

/* grow MIB: one block, from 1 MiB on in steps of 64 KiB, another allocated behind it each time. */
static void grow(void)
{
    size_t bytes = argument(1, 4) * MIB, size = MIB, count = 0;
    char *block = malloc(size);
    touch_pages(block, size);
    void *others[4096];
    double start = now();
    while (size < bytes && count < 4096) {
        others[count++] = malloc(40000);
        block = realloc(block, size + (64 << 10));
        CHECK(block && block[size - 4096] == 1);
        touch_pages(block + size, 64 << 10);
        size += 64 << 10;
    }
    printf("us_per_step %.1f\n", (now() - start) / count * 1e6);
    while (count)
        free(others[--count]);
    free(block);
}

/* vectors N: N blocks, doubled in turn from 256 KiB to 1 MiB. */
static void vectors(void)
{
    size_t n = argument(1, 64);
    char **vector = calloc(n, sizeof *vector);
    for (size_t at = 0; at < n; at++)
        touch_pages(vector[at] = malloc(256 << 10), 256 << 10);
    double start = now();
    for (size_t size = 256 << 10; size < MIB; size *= 2)
        for (size_t at = 0; at < n; at++) {
            vector[at] = realloc(vector[at], size * 2);
            CHECK(vector[at] && vector[at][size - 4096] == 1);
            touch_pages(vector[at] + size, size);
        }
    printf("us_per_doubling %.1f mappings %zu\n", (now() - start) / n / 2 * 1e6, mappings());
    for (size_t at = 0; at < n; at++)
        free(vector[at]);
    free(vector);
}

/* idle SECONDS OBJECTS: objects of 16 to 4,096 bytes, all but one in twenty freed, then nothing. */
static void idle(void)
{
    size_t seconds = argument(1, 0), n = argument(2, 20000);
    void **object = calloc(n, sizeof *object);
    Random random = {1};
    for (size_t at = 0; at < n; at++) {
        size_t size = 16 + next(&random) % 4081;
        memset(object[at] = malloc(size), 1, size);
    }
    size_t full = resident();
    for (size_t at = 0; at < n; at++)
        if (at % 20)
            free(object[at]), object[at] = NULL;
    size_t freed = resident();
    sleep((unsigned)seconds);
    printf("full_mib %zu freed_mib %zu later_mib %zu threads %zu\n", full, freed, resident(), status("Threads:"));
    for (size_t at = 0; at < n; at++)
        free(object[at]);
    free(object);
}

/* end MIB: how long a parent waits for a child that had so much, and ends. */
static void end(void)
{
    size_t bytes = argument(1, 8) * MIB;
    int ready[2];
    fflush(stdout);
    CHECK(!pipe(ready));
    pid_t child = fork();
    if (!child) {
        for (size_t had = 0; had < bytes; had += 4 * MIB)
            touch_pages(malloc(4 * MIB), 4 * MIB);
        CHECK(write(ready[1], "x", 1) == 1);
        exit(0);
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    double start = now();
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    printf("wait_ms %.1f\n", (now() - start) * 1e3);
}

/* cached SECONDS: a thread on each CPU frees what it had and does nothing more; the process goes on a little. */
static pthread_barrier_t barrier;
static void *caches(void *argument)
{
    void *object[2000];
    for (size_t size = 16; size <= 2048; size *= 2) {
        for (int at = 0; at < 2000; at++)
            memset(object[at] = malloc(size), 1, size);
        for (int at = 0; at < 2000; at++)
            free(object[at]);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return argument;
}
static void cached(void)
{
    size_t seconds = argument(1, 0), threads = 4;
    pthread_t thread[4];
    char *base = malloc(64 * MIB);
    memset(base, 1, 64 * MIB);
    CHECK(!pthread_barrier_init(&barrier, NULL, threads + 1));
    for (size_t at = 0; at < threads; at++)
        CHECK(!pthread_create(&thread[at], NULL, caches, NULL));
    pthread_barrier_wait(&barrier);
    size_t before = resident();
    /* Not idle: a hundred slow allocations each 100 ms, of one size, on one CPU. */
    for (size_t round = 0; round < seconds * 10; round++, usleep(100000)) {
        void *some[100];
        for (int at = 0; at < 100; at++)
            some[at] = malloc(40000 + 4096 * (size_t)at);
        for (int at = 0; at < 100; at++)
            free(some[at]);
    }
    printf("before_mib %zu later_mib %zu\n", before, resident());
    pthread_barrier_wait(&barrier);
    for (size_t at = 0; at < threads; at++)
        CHECK(!pthread_join(thread[at], NULL));
    free(base);
}

/* objects MIB ROUNDS: objects of 16 to 4,096 bytes in place of others, so many MiB of them live. */
static void objects(void)
{
    size_t n = argument(1, 1) * MIB / 2056, rounds = argument(2, 10000);
    void **object = calloc(n, sizeof *object);
    Random random = {1};
    for (size_t at = 0; at < n; at++)
        CHECK(object[at] = malloc(16 + next(&random) % 4081));
    double start = now();
    for (size_t round = 0; round < rounds; round++) {
        void **slot = &object[next(&random) % n];
        free(*slot);
        CHECK(*slot = malloc(16 + next(&random) % 4081));
        *(volatile char *)*slot = 1;
    }
    printf("ns_per_pair %.1f resident_mib %zu\n", (now() - start) / rounds * 1e9, resident());
    for (size_t at = 0; at < n; at++)
        free(object[at]);
    free(object);
}

int main(int argc, char **argv)
{
    static const Case cases[] = {
        {"areas", areas}, {"large", large}, {"grow", grow}, {"vectors", vectors}, {"idle", idle},
        {"end", end}, {"cached", cached}, {"objects", objects},
    };
    argc_ = argc, argv_ = argv;
    return run_cases(cases, sizeof cases / sizeof cases[0], argc, argv);
}
