// about: a block that is taken and freed again and again waited for its next request, and one that grew in between began behind it each time: addresses went on by its length a round
#include "../c/check.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 30 << 20 };

static void pairs(int count)
{
    for (int pair = 0; pair < count; pair++) {
        char *block = malloc(BYTES);
        block[0] = block[BYTES - 1] = 1;
        free(block);
    }
}

int main(void)
{
    pairs(60);
    for (int round = 0; round < 60; round++) {
        pairs(4);
        char *grown = NULL;
        for (size_t bytes = BYTES / 8; bytes <= BYTES; bytes += BYTES / 8) {
            grown = realloc(grown, bytes);
            memset(grown + bytes - BYTES / 8, 1, BYTES / 8);
        }
        free(grown);
    }
    puts(memory_of(0).mapped < (size_t)256 << 20 ? "some" : "all");
    return 0;
}
