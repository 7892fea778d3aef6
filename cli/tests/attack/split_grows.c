// about: a block of several mappings that grew under a hard limit was copied as a whole, and refused from half of the limit on
// conf: hard_limit=128M,huge_bytes=0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MIB = 1 << 20, FROM = 70 * MIB, STEP = 10 * MIB, TO = 110 * MIB };

int main(void) {
    unsigned char *block = malloc(FROM), *volatile wall = malloc(4 * MIB);
    for (long at = 0; at < FROM; at += 64)
        block[at] = (unsigned char)(at >> 6 ^ at >> 14);
    for (long size = FROM + STEP; size <= TO; size += STEP) {
        // The kernel moves no two mappings at once.
        unsigned char *page = (unsigned char *)(((unsigned long)block + 5 * MIB) & -4096ul);
        if (mprotect(page, 3 * MIB, PROT_READ))
            perror("mprotect");
        block = realloc(block, size);
        if (!block) {
            printf("refused %ld MiB\n", size / MIB);
            return 1;
        }
        memset(block + size - STEP, 7, STEP);
    }
    long wrong = 0;
    for (long at = 0; at < FROM; at += 64)
        wrong += block[at] != (unsigned char)(at >> 6 ^ at >> 14);
    for (long at = FROM; at < TO; at++)
        wrong += block[at] != 7;
    printf("%ld wrong\n", wrong);
    free(block);
    free(wall);
    return 0;
}
