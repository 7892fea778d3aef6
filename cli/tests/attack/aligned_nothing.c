// about: nothing, aligned to more than a page, where the system has no more memory: a run of no pages was taken over, at no address
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

int main(void)
{
    struct rlimit limit = {100 << 20, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit))
        return 2;
    for (size_t size = 1 << 20; size > 1000; size /= 5)
        while (malloc(size))
            ;
    for (size_t align = 16; align <= (size_t)256 << 20; align *= 2) {
        long count = 0;
        void *block = NULL;
        errno = 0;
        while (count < 100000 && (block = aligned_alloc(align, 0)))
            count++;
        if (!block && errno != ENOMEM)
            printf("%zu: %d\n", align, errno);
    }
    puts("alive");
    return 0;
}
