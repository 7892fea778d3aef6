// about: the first free of a GiB in blocks wrote the class byte of each for the first time: 130 page faults, three fifths of its time
#include "../c/check.h"

enum { BLOCKS = 1024, BYTES = 1 << 20 };

int main(void)
{
    static char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(blocks[i] = malloc(BYTES));
        *blocks[i] = 1;
    }
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    getrusage(RUSAGE_SELF, &after);
    puts(after.ru_minflt - before.ru_minflt < 40 ? "few" : "many");
    return 0;
}
