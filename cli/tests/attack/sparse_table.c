// about: a large table of zeros that is touched here and there was wholly resident (huge pages), and killed in a cgroup where glibc's few pages fit
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

int main(void)
{
    char text[64] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (file && fgets(text, sizeof text, file) && strstr(text, "[always]")) {
        puts("skipped: the system makes huge pages for all");
        return 77;
    }
    // Of a window's areas, and a giant one; and what was one of them before.
    size_t sizes[] = {(size_t)40 << 20, (size_t)2 << 30, (size_t)300 << 20, (size_t)300 << 20};
    for (int round = 0; round < 4; round++) {
        char *table = calloc(1, sizes[round]);
        if (!table)
            return 2;
        for (size_t at = 0; at < sizes[round]; at += 2 << 20)
            table[at]++;
        for (size_t at = 0; at < sizes[round]; at += 1 << 20)
            if (table[at] != (at % (2 << 20) == 0))
                return 3;
        free(table);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    puts(usage.ru_maxrss < 64 << 10 ? "a page of each" : "all of it");
    return 0;
}
