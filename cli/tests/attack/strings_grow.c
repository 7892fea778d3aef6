// about: objects that grow through the size classes left each class's caches behind, of which each object kept a slab of 32 KiB
#include "../c/check.h"
#include <sys/resource.h>

#define STRINGS 20000

int main(void)
{
    static char *strings[STRINGS];
    static size_t bytes[STRINGS];
    size_t all = 0;
    unsigned random = 1;
    for (int round = 0; round < 40; round++)
        for (int at = 0; at < STRINGS; at++) {
            random = random * 1664525 + 1013904223;
            size_t more = 16 + (random >> 8) % 64;
            strings[at] = realloc(strings[at], bytes[at] + more);
            CHECK(strings[at]);
            memset(strings[at] + bytes[at], at, more);
            bytes[at] += more;
            all += more;
        }
    for (int at = 0; at < STRINGS; at++)
        for (size_t byte = 0; byte < bytes[at]; byte++)
            CHECK(strings[at][byte] == (char)at);
    struct rusage usage;
    CHECK(!getrusage(RUSAGE_SELF, &usage));
    /* 37 MB are in use. It was 155; mimalloc takes 72, tcmalloc 108. */
    CHECK((size_t)usage.ru_maxrss << 10 < all / 2 * 7);
    return 0;
}
