// about: a queue of 20 MiB whose blocks change their size from 4 to 60 KB and back faulted all of its memory in anew each time: what one side of 32 KiB had left was given back, and the other took fresh pages
#include "../c/check.h"

#define BYTES (20u << 20)
#define BLOCKS 8192
#define PHASES 60

static struct { unsigned char *block; size_t size; } queue[BLOCKS];

int main(void)
{
    size_t head = 0, tail = 0, used = 0;
    long first = 0;
    Random random = {1};
    for (int phase = 0; phase < PHASES; phase++) {
        if (phase == 4)
            first = page_faults();
        size_t size = 4000 + next(&random) % 56000;
        for (size_t done = 0; done < BYTES; done += size) {
            unsigned char *block = malloc(size);
            CHECK(block);
            memset(block, (int)(head % 251), size);
            queue[head % BLOCKS].block = block, queue[head % BLOCKS].size = size;
            head++, used += size;
            for (; used > BYTES; tail++) {
                unsigned char *old = queue[tail % BLOCKS].block;
                size_t bytes = queue[tail % BLOCKS].size;
                for (size_t at = 0; at < bytes; at += 509)
                    CHECK(old[at] == tail % 251);
                CHECK(old[bytes - 1] == tail % 251);
                free(old);
                used -= bytes;
            }
        }
    }
    long more = page_faults() - first, all = (long)(PHASES - 4) * (BYTES / 4096);
    CHECK(more < all / 3, "%ld faults for %ld pages", more, all);
    say("ok\n");
    return 0;
}
