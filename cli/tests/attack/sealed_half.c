// about: a block of several mappings, one of them sealed, that grows: Linux 6.17 moved what came before it and then failed
// args: 4 8
// args: 2 16
// long: 520 560
#include "../c/check.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* Grows a block of which a part cannot be moved; every byte stays. */
static int grows(size_t from, size_t to)
{
    unsigned char *block = malloc(from), *wall = malloc(from);
    CHECK(block && wall, "%zu", from);
    memset(block, 0x5a, from);
    unsigned char *half = block + from / 2;
    half += -(uintptr_t)half % 4096;
    /* A mapping of its own, and sealed. */
    if (mprotect(half, from / 4, PROT_READ) || syscall(462, half, from / 4, 0))
        return 0;
    unsigned char *longer = realloc(block, to);
    CHECK(longer, "%zu", to);
    for (size_t at = 0; at < from; at++)
        CHECK(longer[at] == 0x5a, "%zu to %zu: byte %zu is %d", from, to, at, longer[at]);
    memset(longer + from, 1, to - from);
    return 1;
}

int main(int argc, char **argv)
{
    if (!grows(atoi(argv[1]) * MIB, atoi(argv[2]) * MIB)) {
        puts("skipped: no mseal here");
        return SKIPPED;
    }
    puts("ok");
}
