// about: above 64 MiB of small blocks huge pages made all of each block resident: a server's stacks and buffers, of which little is used, took 2.6 times as much
// args: 16384
// args: 9000
// args: 5000
// alone
#include "../c/check.h"

enum { MIB = 1 << 20, ALL = 300 };

/* Blocks of a size, of which each has its first bytes touched; what is resident is what was touched, and little more. */
int main(int argc, char **argv)
{
    CHECK(argc == 2);
    size_t size = (size_t)atol(argv[1]), count = (size_t)ALL * MIB / size;
    char **blocks = malloc(count * sizeof *blocks);
    size_t before = memory_of(0).resident;
    for (size_t at = 0; at < count; at++) {
        CHECK(blocks[at] = malloc(size));
        memset(blocks[at], 1, 300);
    }
    size_t touched = (count * 4096 + count * sizeof *blocks) / MIB, resident = (memory_of(0).resident - before) / MIB;
    CHECK(resident <= touched * 5 / 4 + 8, "%zu MiB, touched %zu", resident, touched);
    for (size_t at = 0; at < count; at++)
        free(blocks[at]);
    return 0;
}
