// about: short blocks that are kept were cut of the long area that a temporary block beside them came from, which could not come back to it: address space for 17 MiB grew to a GiB, and each round took fresh pages
#include "../c/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { KEPT = 40, ROUNDS = 10000 };

int main(void)
{
    static char *kept[KEPT];
    uint64_t random = 1;
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t bytes = (1100 << 10) + (random >> 20) % ((8192 - 1100) << 10);
        char *temporary = malloc(bytes);
        memset(temporary, 1, bytes);
        char **one = &kept[(random >> 58) % KEPT];
        free(*one);
        size_t its = (16 << 10) + (random >> 8) % (200 << 10);
        *one = malloc(its);
        memset(*one, 2, its);
        free(temporary);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    puts(memory_of(0).mapped < (size_t)256 << 20 ? "some" : "all");
    puts(usage.ru_minflt < 200000 ? "few" : "many");
    return 0;
}
