// about: a limit that leaves a few pages: metadata blocks of 8 KiB were made of a chunk of 4 KiB, and overlapped what lay behind
// args: v 4096
// args: v 8192
// args: v 20480
// args: v 40960
// args: v 61440
// args: d 20480
// args: d 61440
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { KINDS = 4, MANY = 20000 };
static char *blocks[KINDS][MANY];

static void fill(int kind, int at) {
    size_t size = 16 * kind + 16;
    if (!(blocks[kind][at] = malloc(size)))
        exit(3);
    memset(blocks[kind][at], kind * 31 + at % 29 + 1, size);
}

static void check(int kind, int at) {
    for (int byte = 0; byte < 16 * kind + 16; byte++)
        if (blocks[kind][at][byte] != (char)(kind * 31 + at % 29 + 1))
            exit(4);
    free(blocks[kind][at]);
}

static void each(void (*what)(int, int)) {
    for (int kind = 0; kind < KINDS; kind++)
        for (int at = 0; at < MANY; at++)
            what(kind, at);
}

int main(int count, char **args) {
    each(fill);
    // (Whole pages of address space, or of data.)
    long all = 0, data = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (count < 3 || !file || fscanf(file, "%ld %*d %*d %*d %*d %ld", &all, &data) != 2)
        return 5;
    fclose(file);
    int is_data = args[1][0] == 'd';
    struct rlimit limit = {(is_data ? data : all) * 4096 + atol(args[2]), RLIM_INFINITY};
    setrlimit(is_data ? RLIMIT_DATA : RLIMIT_AS, &limit);
    for (int round = 0; round < 5; round++) {
        each(check);
        each(fill);
    }
    puts("ok");
}
