// about: a block grown by realloc in steps was resident twice, or a third more
// args: 240 20 12
// args: 1 1 200
// alone
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
static void touch(char *block, size_t from, size_t to)
{
    for (; from < to; from += 4096)
        ((volatile char *)block)[from] = (char)(from >> 12);
}
static size_t peak(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss * 1024;
}

/* first MiB, step MiB, steps: again and again, and beside another that grows. */
int main(int argc, char **argv)
{
    size_t first = (size_t)atoi(argv[1]) * MIB, step = (size_t)atoi(argv[2]) * MIB, steps = (size_t)atoi(argv[3]);
    size_t before = peak(), most = first + steps * step;
    for (int round = 0; round < 3; round++) {
        char *block = malloc(first);
        touch(block, 0, first);
        for (size_t at = 1; at <= steps; at++) {
            size_t size = first + at * step;
            block = realloc(block, size);
            touch(block, size - step, size);
        }
        for (size_t at = 0; at < most; at += 4096)
            if (block[at] != (char)(at >> 12))
                return printf("wrong at %zu\n", at), 1;
        free(block);
        usleep(round * 60000);
    }
    size_t above = peak() - before;
    if (above > most + most / 33 + 8 * MIB)
        return printf("peak %zu MiB of %zu\n", above / MIB, most / MIB), 1;
    puts("ok");
}
