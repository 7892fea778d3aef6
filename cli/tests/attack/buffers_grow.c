// about: 5,000 buffers that grow by realloc, 50 bytes at a time, took 2.4 times what they have: what was cached of sizes that most have left behind kept their slabs
#include "../c/check.h"
#include <sys/resource.h>

#define BUFFERS 5000
#define STEPS 2000000
#define MOST 60000

int main(void)
{
    static char *buffers[BUFFERS];
    static size_t bytes[BUFFERS];
    size_t all = 0;
    Random random = {1};
    for (int step = 0; step < STEPS; step++) {
        size_t at = next(&random) % BUFFERS, more = 1 + next(&random) % 100;
        CHECK((buffers[at] = realloc(buffers[at], bytes[at] + more)));
        memset(buffers[at] + bytes[at], (int)at, more);
        bytes[at] += more;
        all += more;
        CHECK(bytes[at] < MOST);
    }
    for (size_t at = 0; at < BUFFERS; at++)
        for (size_t byte = 0; byte < bytes[at]; byte++)
            CHECK(buffers[at][byte] == (char)at);
    struct rusage usage;
    CHECK(!getrusage(RUSAGE_SELF, &usage));
    CHECK((size_t)usage.ru_maxrss << 10 < all * 7 / 4, "%ld MiB of %zu", usage.ru_maxrss >> 10, all >> 20);
    say("ok\n");
    return 0;
}
