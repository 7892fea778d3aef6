// about: after blocks of 40,000 bytes and then small ones had filled a limit of addresses and were freed, a third of it was left for large blocks: metadata lay in between, 32 KiB every 8 MiB
// limit: -s 512
// limit: -v 150000
#include "../c/check.h"

#define MOST 4000000

static void *blocks[MOST];

// How many blocks of so many bytes there are; all are freed again.
static long fill(size_t bytes)
{
    long had = 0;
    while (had < MOST && (blocks[had] = malloc(bytes)))
        *(char *)blocks[had++] = 1;
    for (long at = 0; at < had; at++)
        free(blocks[at]);
    return had;
}

int main(void)
{
    CHECK(fill(40000) > 1000);
    CHECK(fill(1000) > 40000);
    long large = fill(9000000), giant = fill(30000000);
    // (glibc: 13 and 3; of a fresh heap 12 and 3.)
    CHECK(large >= 9 && giant >= 2, "%ld, %ld", large, giant);
    CHECK(fill(16) > 1000000);
    large = fill(9000000), giant = fill(30000000);
    CHECK(large >= 9 && giant >= 2, "%ld, %ld after the smallest", large, giant);
    say("ok\n");
    return 0;
}
