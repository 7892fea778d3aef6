// about: areas aligned to up to 64 MiB took ever more address space: none of the free runs was long enough wherever it lay, for dirty pieces lay between
#include "../c/check.h"

#include <malloc.h>

enum { BLOCKS = 16, TURNS = 450000 };

int main(void)
{
    static char *block[BLOCKS];
    uint64_t random = 1;
    for (int turn = 0; turn < TURNS; turn++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        char **one = &block[(random >> 60) % BLOCKS];
        free(*one);
        *one = memalign((size_t)1 << (12 + (random >> 40) % 15), (17 << 10) + (random >> 20) % (6 << 20));
        if (!*one)
            return 1;
        **one = 1;
    }
    puts(memory_of(0).mapped < (size_t)7 << 29 ? "some" : "all");
    return 0;
}
