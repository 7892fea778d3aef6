// about: a program that uses all mappings it may have got no memory beyond what was mapped: glibc's heap grows by the one it has
// args: 1000
// args: 100000
// alone
#include "../c/check.h"
#include <sys/mman.h>

enum { WANTED = 200 << 20 };

int main(int argc, char **argv)
{
    size_t bytes = strtoul(argv[1], NULL, 10), count = WANTED / bytes;
    unsigned char **block = malloc(count * sizeof *block);
    /* Some of each kind before. */
    free(memset(malloc(1000), 1, 1000));
    free(memset(malloc(100000), 1, 100000));
    char *pages = mmap(NULL, 70000 * 8192ul, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(pages != MAP_FAILED);
    long made = 0;
    while (made < 70000 && !mprotect(pages + made * 8192, 4096, PROT_READ))
        made++;
    if (made == 70000) {
        puts("there are more mappings than this counts");
        return SKIPPED;
    }
    for (size_t at = 0; at < count; at++) {
        block[at] = malloc(bytes);
        CHECK(block[at], "%zu MiB of %d", at * bytes >> 20, WANTED >> 20);
        memset(block[at], (int)at, bytes);
    }
    for (size_t at = 0; at < count; at++) {
        for (size_t byte = 0; byte < bytes; byte += 500)
            CHECK(block[at][byte] == (unsigned char)at);
        free(block[at]);
    }
    puts("ok");
}
