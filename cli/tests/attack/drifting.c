// about: of objects whose sizes drift one in a hundred stayed, and kept all memory: each on a page of a slab of its size, while the program worked
// alone
#include "../c/check.h"

enum { BYTES = 60 << 20 };

static char *block[BYTES / 100];

static bool has_all(void) { return memory_of(0).resident >= (size_t)200 << 20; }

/* So that looks for what is idle find nothing. */
static void work(void)
{
    for (int at = 0; at < 200; at++)
        block[at] = malloc(3000 + (size_t)at);
    for (int at = 0; at < 200; at++)
        free(block[at]);
    usleep(50000);
}

int main(void)
{
    for (int turn = 0; turn < 5; turn++) {
        int size = 100 + 16 * turn, objects = BYTES / size;
        for (int at = 0; at < objects; at++) {
            block[at] = malloc((size_t)size);
            memset(block[at], 1, (size_t)size);
        }
        for (int at = 0; at < objects; at++)
            if (at % 100)
                free(block[at]);
        for (int step = 0; step < 30; step++)
            work();
    }
    // (Where others have the CPUs it takes longer.)
    for (int step = 0; step < 200 && has_all(); step++)
        work();
    puts(has_all() ? "all" : "some");
    return 0;
}
