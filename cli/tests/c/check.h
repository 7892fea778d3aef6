/* What the test programs share: a check that says where it failed without
 * asking the heap for anything, patterns that tell whose a block is, and a
 * small random generator. Exit status: 0 passed, 1 a check failed, 77 skipped. */
#ifndef CHECK_H
#define CHECK_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SKIPPED 77

#define CHECK(condition, ...)                                                      \
    do {                                                                           \
        if (__builtin_expect(!(condition), 0))                                     \
            check_failed(__FILE__, __LINE__, #condition, " " __VA_ARGS__);         \
    } while (0)

/* Formats on the stack; dprintf would do too, but not after a corruption. */
__attribute__((noreturn, cold, unused, format(printf, 4, 5))) static void
check_failed(const char *file, int line, const char *condition, const char *format, ...)
{
    char text[512];
    int kept = errno;
    int length = snprintf(text, sizeof text, "%s:%d: failed: %s (errno %d)", file, line, condition, kept);
    va_list list;
    va_start(list, format);
    if (length > 0 && (size_t)length < sizeof text)
        length += vsnprintf(text + length, sizeof text - (size_t)length, format, list);
    va_end(list);
    if (length >= (int)sizeof text)
        length = sizeof text - 1;
    text[length] = '\n';
    if (write(2, text, (size_t)length + 1) < 0)
        _exit(3);
    _exit(1);
}

/* Bytes that a process (0: this one) has mapped, and that are resident, without an allocation; none if it is gone. */
typedef struct {
    size_t mapped, resident;
} Memory;

__attribute__((unused)) static Memory memory_of(pid_t pid)
{
    char path[64] = "/proc/self/statm", text[128] = "", *rest;
    if (pid)
        snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || read(file, text, sizeof text - 1) < 0)
        CHECK(pid, "%s cannot be read", path);
    if (file >= 0)
        close(file);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = strtoul(text, &rest, 10) * page;
    Memory memory = {mapped, strtoul(rest, NULL, 10) * page};
    CHECK(pid || memory.resident, "%s is empty", path);
    return memory;
}

/* Page faults of this process so far that read nothing. */
__attribute__((unused)) static long page_faults(void)
{
    struct rusage usage;
    CHECK(!getrusage(RUSAGE_SELF, &usage));
    return usage.ru_minflt;
}

/* Writes a byte of each page. */
__attribute__((unused)) static void touch_pages(volatile char *block, size_t size)
{
    for (size_t at = 0; at < size; at += 4096)
        block[at] = 1;
}

__attribute__((unused)) static void say(const char *text)
{
    if (write(1, text, strlen(text)) < 0)
        _exit(3);
}

static inline uint64_t mix(uint64_t x)
{
    x ^= x >> 30, x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27, x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

typedef struct { uint64_t state; } Random;

static inline uint64_t next(Random *random)
{
    return mix(random->state += 0x9e3779b97f4a7c15u);
}

/* Sizes spread over every class and every layer, small ones most often. */
__attribute__((unused)) static size_t some_size(Random *random)
{
    uint64_t dice = next(random);
    unsigned kind = dice % 1000;
    dice >>= 16;
    if (kind < 700)
        return 16 + dice % 496;
    if (kind < 900)
        return 16 + dice % 4080;
    if (kind < 980)
        return 16 + dice % 32768;
    if (kind < 998)
        return 16 + dice % (256 << 10);
    return 16 + dice % (2 << 20);
}

/* Which bytes of a block carry its pattern: all of a small one, and of a large
 * one both ends and a word in every 2 KiB. */
#define DENSE 2048
static inline size_t step_after(size_t at, size_t size)
{
    return at < DENSE || at + DENSE + 8 > size ? at + 8 : (at + 2048 > size - DENSE ? (size - DENSE) & ~(size_t)7 : at + 2048);
}

/* Writes size, owner word and a pattern of address, size and position. At least 16 bytes. */
__attribute__((unused)) static void mark(void *block, size_t size)
{
    uint64_t *word = block, seed = mix((uintptr_t)block ^ size);
    word[0] = size;
    for (size_t at = 8; at + 8 <= size; at = step_after(at, size))
        word[at / 8] = seed + at;
    for (size_t at = size & ~(size_t)7; at < size; at++)
        ((unsigned char *)block)[at] = (unsigned char)(seed + at);
}

/* Checks it; returns the size. */
__attribute__((unused)) static size_t verify(const void *block)
{
    const uint64_t *word = block;
    size_t size = word[0];
    CHECK(size >= 16 && size < (size_t)1 << 40, "size of %p overwritten: %#zx", block, size);
    uint64_t seed = mix((uintptr_t)block ^ size);
    for (size_t at = 8; at + 8 <= size; at = step_after(at, size))
        CHECK(word[at / 8] == seed + at, "block %p of %zu at %zu", block, size, at);
    for (size_t at = size & ~(size_t)7; at < size; at++)
        CHECK(((const unsigned char *)block)[at] == (unsigned char)(seed + at), "block %p of %zu at %zu", block, size, at);
    return size;
}

/* A new marked block by one of several ways to ask for it. */
__attribute__((unused)) static void *grab(Random *random, size_t size)
{
    uint64_t dice = next(random) % 64;
    void *block = NULL;
    if (dice == 0) {
        size_t align = (size_t)16 << next(random) % 9;
        if (posix_memalign(&block, align, size))
            return NULL;
        CHECK((uintptr_t)block % align == 0, "%p is not aligned to %zu", block, align);
    } else if (dice < 8) {
        block = calloc(1, size);
        if (block)
            for (size_t at = 0; at + 8 <= size; at = step_after(at, size))
                CHECK(((uint64_t *)block)[at / 8] == 0, "calloc %p of %zu not zero at %zu", block, size, at);
    } else if (dice < 10) {
        block = malloc(16);
        void *grown = block ? realloc(block, size) : NULL;
        if (!grown)
            free(block);
        block = grown;
    } else
        block = malloc(size);
    if (!block)
        return NULL;
    CHECK((uintptr_t)block % 16 == 0, "%p is not aligned to 16", block);
    mark(block, size);
    return block;
}

/* Checks and frees. */
__attribute__((unused)) static void drop(void *block)
{
    if (!block)
        return;
    verify(block);
    *(uint64_t *)block = 0;
    free(block);
}

/* Blocks of one thread: replaced at random. */
#define HELD 256
typedef struct { void *block[HELD]; Random random; } Held;

__attribute__((unused)) static void churn(Held *held, unsigned rounds)
{
    while (rounds--) {
        void **slot = &held->block[next(&held->random) % HELD];
        drop(*slot);
        *slot = NULL;
        if (next(&held->random) % 4) {
            size_t size = some_size(&held->random);
            *slot = grab(&held->random, size);
            CHECK(*slot, "%zu bytes", size);
        }
    }
}

__attribute__((unused)) static void churn_end(Held *held)
{
    for (unsigned at = 0; at < HELD; at++)
        drop(held->block[at]), held->block[at] = NULL;
}

__attribute__((unused)) static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Pins the caller (or another thread) to one of the CPUs that it may use. */
__attribute__((unused)) static void hop(pid_t thread, const cpu_set_t *allowed, Random *random)
{
    int count = CPU_COUNT(allowed), want = (int)(next(random) % (uint64_t)count);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, allowed) && want-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(thread, sizeof one, &one);
            return;
        }
}

/* One program has several cases; `all` or nothing runs every one. */
typedef struct { const char *name; void (*run)(void); } Case;

__attribute__((unused)) static int run_cases(const Case *cases, size_t count, int argc, char **argv)
{
    int ran = 0;
    for (size_t at = 0; at < count; at++)
        if (argc < 2 || !strcmp(argv[1], "all") || !strcmp(argv[1], cases[at].name)) {
            cases[at].run();
            say("ok ");
            say(cases[at].name);
            say("\n");
            ran++;
        }
    CHECK(ran, "no case %s", argc > 1 ? argv[1] : "");
    return 0;
}
#define RUN_CASES(cases) run_cases(cases, sizeof cases / sizeof cases[0], argc, argv)
#endif
