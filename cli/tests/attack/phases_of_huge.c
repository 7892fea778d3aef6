// about: 100 MiB in blocks of 40 MB, then of 3 MB, and so on: a fresh huge block was not followed by a look at what may stay, 177 MiB for 100 (each peer 131 at most)
#include "../c/check.h"

enum { MUCH = 100 << 20 };

int main(void)
{
    static char *blocks[MUCH / 3000000];
    for (int round = 0; round < 10; round++) {
        size_t bytes = round % 2 ? 3000000 : 40000000;
        int count = MUCH / bytes;
        for (int i = 0; i < count; i++) {
            blocks[i] = malloc(bytes);
            for (size_t at = 0; at < bytes; at += 4096)
                blocks[i][at] = 1;
        }
        for (int i = 0; i < count; i++)
            free(blocks[i]);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    puts(usage.ru_maxrss < 155 << 10 ? "small" : "large");
    return 0;
}
