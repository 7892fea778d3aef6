// about: what cannot be thrown away because it is locked is zeroed by hand
// args: 1
// args: 3
// args: 5
#include "../c/check.h"
#include <malloc.h>
#include <sys/mman.h>

static char *zeroes(size_t size)
{
    char *block = calloc(1, size);
    CHECK(block, "%zu", size);
    for (size_t i = 0; i < size; i++)
        CHECK(!block[i], "%zu at %zu", size, i);
    return block;
}

int main(int argc, char **argv)
{
    free(malloc(100));
    if (mlockall(atoi(argv[1]))) {
        puts("skipped: mlockall is refused");
        return SKIPPED;
    }
    for (int round = 0; round < 4; round++) {
        for (size_t size = 1; size < 10000000; size = size * 2 + 3) {
            char *block = memset(zeroes(size), 0x5a, size);
            if (round & 1)
                block = memset(realloc(block, size * 2), 0x5a, size * 2);
            free(block);
        }
        if (round & 1)
            malloc_trim(0);
    }
    static char *block[500];
    for (int i = 0; i < 500; i++)
        block[i] = memset(malloc(4000 + i), 0x77, 4000 + i);
    for (int i = 0; i < 500; i++)
        free(block[i]);
    malloc_trim(0);
    for (int i = 0; i < 500; i++)
        block[i] = zeroes(60000);
    puts("ok");
}
