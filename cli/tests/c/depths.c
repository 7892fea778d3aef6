/* Blocks of a size that nobody had before, from deeper and deeper in the stack: where it grows is the allocator's slow path first. */
#include "check.h"

static __attribute__((noinline)) void deeper(int left)
{
    volatile char frame[200];
    frame[0] = 1;
    char *block = malloc(left % 50 * 16 + 1);
    CHECK(block);
    block[0] = 1;
    if (left)
        deeper(left - 1);
    free(block);
    CHECK(frame[0] == 1);
}

int main(void)
{
    deeper(2000);
}
