/* Holds what it says and ends at once, so that the statistics can be compared with it.
 *
 *   hold numbers     1,000 objects of 100 bytes, 500 of them freed; an area of
 *                    10 MiB kept and one of 9 MiB freed (which no CPU keeps)
 *   hold told        the same, then `malloc_info` on standard output and
 *                    `malloc_stats` on standard error
 *   hold moved       a block of 1 MiB, something behind it, grown to 64 MiB
 *   hold mappings    how many more mappings hundreds of areas cost, grown among each
 *                    other, at most and at the end
 *   hold namespace   a user namespace of its own, which a second thread forbids */
#include "check.h"
#include <fcntl.h>
#include <malloc.h>

#define MIB ((size_t)1 << 20)

static void *small[1000];
static unsigned char *kept, *freed;

static void numbers(void)
{
    for (int at = 0; at < 1000; at++) {
        CHECK(small[at] = malloc(100));
        mark(small[at], 100);
    }
    for (int at = 0; at < 500; at++)
        drop(small[at]);
    CHECK(kept = malloc(10 * MIB));
    memset(kept, 1, 10 * MIB);
    CHECK(freed = malloc(9 * MIB));
    memset(freed, 2, 9 * MIB);
    free(freed);
}

static void told(void)
{
    numbers();
    CHECK(malloc_info(0, stdout) == 0);
    CHECK(!fflush(stdout));
    malloc_stats();
    struct mallinfo2 info = mallinfo2();
    printf("small %zu areas %zu\n", info.uordblks, info.hblkhd);
    CHECK(!fflush(stdout));
}

static void moved(void)
{
    uint64_t *block = malloc(MIB);
    CHECK(block);
    for (size_t at = 0; at < MIB / 8; at += 64)
        block[at] = mix(at);
    for (size_t size = 2 * MIB; size <= 64 * MIB; size *= 2) {
        void *behind = malloc(size / 2);
        CHECK(behind);
        block = realloc(block, size);
        CHECK(block);
        for (size_t at = 0; at < size / 16; at += 64)
            CHECK(block[at] == mix(at), "word %zu of %zu bytes", at, size);
        for (size_t at = size / 16; at < size / 8; at += 64)
            block[at] = mix(at);
        free(behind);
    }
    free(block);
}

static long count_mappings(void)
{
    static char text[65536];
    long lines = 0, got;
    int file = open("/proc/self/maps", O_RDONLY);
    CHECK(file >= 0);
    while ((got = read(file, text, sizeof text)) > 0)
        for (long at = 0; at < got; at++)
            lines += text[at] == '\n';
    close(file);
    return lines;
}

static void mappings(void)
{
    enum { MANY = 400 };
    static uint64_t *block[MANY];
    free(malloc(100));
    long before = count_mappings(), most = 0;
    for (int round = 0; round < 4; round++) {
        for (int at = 0; at < MANY; at++)
            if (!block[at]) {
                CHECK(block[at] = malloc(MIB / 2));
                block[at][0] = (uint64_t)at;
            }
        for (int at = 0; at < MANY; at += 2) { /* the next one is in the way */
            CHECK(block[at] = realloc(block[at], MIB + (size_t)(round * 4096)));
            CHECK(block[at][0] == (uint64_t)at);
        }
        long now = count_mappings() - before;
        most = now > most ? now : most;
        for (int at = round; at < MANY; at += 3)
            free(block[at]), block[at] = NULL;
    }
    printf("mappings %ld %ld\n", most, count_mappings() - before);
    CHECK(!fflush(stdout));
}

static void namespace(void)
{
    static Held held;
    held.random.state = 4;
    churn(&held, 20000);
    free(malloc(200 * MIB));
    int refused = unshare(CLONE_NEWUSER);
    CHECK(!refused || errno != EINVAL, "another thread");
    if (refused) {
        say("skipped: no user namespaces here\n");
        _exit(SKIPPED);
    }
    churn(&held, 20000);
    churn_end(&held);
}

int main(int argc, char **argv)
{
    static const Case cases[] = {{"numbers", numbers}, {"told", told}, {"moved", moved}, {"mappings", mappings}, {"namespace", namespace}};
    CHECK(argc == 2, "hold CASE");
    int status = RUN_CASES(cases);
    _exit(status);
}
