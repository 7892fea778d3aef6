// about: what a CPU's front kept stayed beside the fresh memory that zeros took: 200 blocks of 16 to 200 KB replaced by calloc peaked at 40 MiB, under malloc at 31
#include "../c/check.h"

enum { BLOCKS = 200, PAIRS = 20000 };

int main(void)
{
    static char *blocks[BLOCKS];
    Random random = {1};
    for (int i = 0; i < PAIRS; i++) {
        size_t bytes = 16385 + next(&random) % (200000 - 16385);
        char **one = &blocks[next(&random) % BLOCKS];
        free(*one);
        *one = calloc(1, bytes);
        for (size_t at = 0; at < bytes; at += 4096) {
            CHECK(!(*one)[at]);
            (*one)[at] = 1;
        }
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    puts(usage.ru_maxrss < 36 << 10 ? "small" : "large");
    return 0;
}
