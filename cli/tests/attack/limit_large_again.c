// about: under a limit of addresses (ulimit -v) that small objects had filled once, an empty heap could not serve a block of a fifth of it: what their descriptors lie in was taken from among them, and stays
#include "../c/check.h"
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)
#define LIMIT (300 * MIB)

int main(void)
{
    struct rlimit limit = {LIMIT, LIMIT};
    CHECK(!setrlimit(RLIMIT_AS, &limit));
    void *first = malloc(LIMIT / 6 * 5);
    CHECK(first);
    free(first);
    unsigned char **all = NULL, **object;
    size_t count = 0;
    for (; (object = malloc(1000)); count++)
        memset(object + 1, (int)(count % 251), 992), *object = (unsigned char *)all, all = object;
    CHECK(count * 1000 > LIMIT / 2, "%zu objects", count);
    while (all) {
        object = all, all = (unsigned char **)*object, count--;
        for (size_t at = 8; at < 1000; at += 31)
            CHECK(((unsigned char *)object)[at] == count % 251);
        free(object);
    }
    size_t most = LIMIT;
    void *block = NULL;
    for (; most > 0 && !block; most -= MIB)
        block = malloc(most);
    CHECK(block && most > LIMIT / 5 * 2, "%zu of %zu MiB", most / MIB, LIMIT / MIB);
    memset(block, 1, most);
    free(block);
    say("ok\n");
    return 0;
}
