// about: a block that realloc grows in steps needs no second copy of itself
// alone
#include "../c/check.h"
#include <sys/resource.h>

int main(void)
{
    enum { MIB = 1 << 20 };
    for (int round = 0; round < 2; round++) {
        size_t size = 120 * MIB;
        char *block = malloc(size);
        touch_pages(block, size);
        for (int i = 0; i < 12; i++) {
            size += 10 * MIB;
            block = realloc(block, size);
            touch_pages(block, size);
        }
        free(block);
        usleep(100000);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    fprintf(stderr, "peak %ld MiB for 240\n", usage.ru_maxrss >> 10);
    puts(usage.ru_maxrss >> 10 < 270 ? "ok" : "two copies");
}
