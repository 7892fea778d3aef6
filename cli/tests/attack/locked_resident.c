// about: mlockall promises that no access faults: what malloc hands out afterwards is resident, however long the program was idle
// args: 1
// args: 3
// alone
#include "../c/check.h"
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* What of a block is not in memory, in pages that are wholly the block's. */
static size_t absent(void *block, size_t bytes)
{
    static unsigned char in[4096];
    size_t from = ((size_t)block + 4095) / 4096 * 4096, to = ((size_t)block + bytes) / 4096 * 4096, count = 0;
    for (; from < to; from += sizeof in * 4096) {
        size_t pages = (to - from) / 4096 < sizeof in ? (to - from) / 4096 : sizeof in;
        CHECK(!mincore((void *)from, pages * 4096, in));
        for (size_t page = 0; page < pages; page++)
            count += !(in[page] & 1);
    }
    return count;
}

static size_t round_of(int round)
{
    static void *block[400];
    size_t missing = 0;
    for (int at = 0; at < 400; at++) {
        size_t bytes = at % 4 ? 100 + at * 50 : 60000 + at * (size_t)(round % 3 ? 5000 : 20000);
        CHECK(block[at] = malloc(bytes));
        if (round)
            missing += absent(block[at], bytes);
        memset(block[at], round, bytes);
        if (at % 40 == 0) {
            CHECK(block[at] = realloc(block[at], 2 * bytes));
            missing += round ? absent(block[at], 2 * bytes) : 0;
        }
    }
    for (int at = 0; at < 400; at++)
        free(block[at]);
    return missing;
}

int main(int argc, char **argv)
{
    int flags = atoi(argv[1]);
    round_of(0);
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) || mlockall(flags)) {
        puts("skipped: mlockall is refused");
        return SKIPPED;
    }
    size_t missing = 0;
    for (int round = 1; round < 7; round++) {
        missing += round_of(round);
        if (round % 3 == 0)
            usleep(400000);
        if (round % 4 == 0)
            malloc_trim(0);
    }
    /* (Without MCL_FUTURE new memory need not be.) */
    printf("%d\n", flags & MCL_FUTURE ? missing > 0 : 0);
}
