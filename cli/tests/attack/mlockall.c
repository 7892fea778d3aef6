// about: mlockall under a modest limit: windows of address space that is only reserved count as locked memory
// args: 9
// args: 16
#include "../c/check.h"
#include <sys/mman.h>
#include <sys/resource.h>

int main(int argc, char **argv)
{
    struct rlimit limit = {atol(argv[1]) << 20, atol(argv[1]) << 20};
    if (setrlimit(RLIMIT_MEMLOCK, &limit)) {
        puts("skipped: the limit of locked memory is lower");
        return SKIPPED;
    }
    CHECK(geteuid() || !setuid(65534));
    free(malloc(100));
    puts(mlockall(MCL_CURRENT | MCL_FUTURE) ? strerror(errno) : "locked");
    int failed = 0;
    for (int i = 0; i < 100; i++) {
        char *block = malloc(20000);
        failed += !block;
        if (block)
            block[0] = 1;
    }
    printf("%d allocations failed\n", failed);
}
