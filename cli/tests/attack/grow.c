// about: a block that realloc grows in steps needs no second copy of itself
// alone
#include "../c/check.h"
#include <sys/resource.h>

static void touch(volatile char *block, size_t size)
{
    for (size_t i = 0; i < size; i += 4096)
        block[i] = 1;
}

int main(void)
{
    enum { MIB = 1 << 20 };
    for (int round = 0; round < 2; round++) {
        size_t size = 120 * MIB;
        char *block = malloc(size);
        touch(block, size);
        for (int i = 0; i < 12; i++) {
            size += 10 * MIB;
            block = realloc(block, size);
            touch(block, size);
        }
        free(block);
        usleep(100000);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    fprintf(stderr, "peak %ld MiB for 240\n", usage.ru_maxrss >> 10);
    puts(usage.ru_maxrss >> 10 < 270 ? "ok" : "two copies");
}
