/* What a program of one thread frees at random it is given again in the order of memory: what it writes one behind the other lies so.
 * (Under glibc it is not.) */
#include "check.h"

#define BLOCKS 100000

static void *block[BLOCKS];

int main(void)
{
    if (!getenv("LD_PRELOAD"))
        return SKIPPED;
    Random random = {1};
    for (int round = 0; round < 3; round++) {
        for (int at = 0; at < BLOCKS; at++)
            CHECK(block[at] = malloc(64));
        if (round > 0) {
            int near = 0;
            for (int at = 1; at < BLOCKS; at++) {
                intptr_t step = (char *)block[at] - (char *)block[at - 1];
                near += step < 8192 && step > -8192;
            }
            /* (But for what main, spare and the slabs in use hold.) */
            CHECK(near > BLOCKS * 9 / 10, "%d of %d lie near the one before", near, BLOCKS);
        }
        for (int at = BLOCKS - 1; at > 0; at--) {
            int other = (int)(next(&random) % (uint64_t)(at + 1));
            void *moved = block[at];
            block[at] = block[other];
            block[other] = moved;
        }
        for (int at = 0; at < BLOCKS; at++)
            free(block[at]);
    }
    return 0;
}
