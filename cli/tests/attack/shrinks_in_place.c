// about: a large buffer that was fitted to what is in it, a quarter or less, was copied: for a moment twice as much was resident
#include "../c/check.h"
#include <sys/resource.h>

static const size_t MIB = (size_t)1 << 20;

int main(void)
{
    struct rusage usage;
    static const size_t cases[][2] = {{16, 3}, {64, 15}, {300, 70}, {2000, 150}};
    for (int at = 0; at < 4; at++) {
        size_t all = cases[at][0] * MIB, left = cases[at][1] * MIB;
        char *block = calloc(all, 1);
        CHECK(block);
        for (size_t byte = 0; byte < left; byte += 4096)
            block[byte] = (char)(byte >> 12 | 1);
        block = realloc(block, left);
        CHECK(block);
        for (size_t byte = 0; byte < left; byte += 4096)
            CHECK(block[byte] == (char)(byte >> 12 | 1));
        CHECK(!getrusage(RUSAGE_SELF, &usage));
        /* What the library itself and the case before have may be there, too. */
        CHECK((size_t)usage.ru_maxrss << 10 < left + left / 2 + 16 * MIB, "%ld MiB for %zu", usage.ru_maxrss >> 10, left / MIB);
        free(block);
    }
    say("ok\n");
    return 0;
}
