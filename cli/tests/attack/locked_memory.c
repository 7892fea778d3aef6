// about: mlockall under a modest limit: what was only reserved counted against it; and fresh memory is zero all the same
// args: 1
// args: 3
// root
// alone
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t address_space(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1)
        return 0;
    fclose(file);
    return (size_t)pages * 4096;
}

int main(int argc, char **argv)
{
    int flags = atoi(argv[1]), dirty = 0, failed = 0;
    static void *some[60];
    free(malloc(100));
    free(malloc(100000));
    printf("a small heap is small: %d\n", address_space() < (12 << 20));
    /* 8 MiB are what most systems allow. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit))
        return 1;
    if (limit.rlim_max > 8 << 20)
        limit.rlim_max = 8 << 20;
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_max < 8 << 20 || setrlimit(RLIMIT_MEMLOCK, &limit) || setuid(65534)) {
        puts("skipped");
        return 0;
    }
    printf("mlockall %d\n", mlockall(flags));
    for (int round = 0; round < 6; round++) {
        for (size_t size = 1; size < 400000; size = size * 2 + 3) {
            unsigned char *block = calloc(1, size);
            failed += !block;
            for (size_t at = 0; block && at < size; at++)
                dirty += block[at] != 0;
            if (block)
                memset(block, 0x5a, size);
            free(block);
        }
        for (int at = 0; at < 60; at++) {
            failed += !(some[at] = malloc(4000 + at));
            if (some[at])
                memset(some[at], 0x77, 4000 + at);
        }
        for (int at = 0; at < 60; at++)
            free(some[at]);
    }
    printf("failed %d, dirty %d\n", failed, dirty);
}
