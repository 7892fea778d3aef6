// about: under a limit of address space or data, what small blocks had did not serve large ones, and the reverse; shrinking failed
// args: as
// args: data
// args: late
// limit: -v 120000
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)
static void *kept[40000];

/* Blocks of a size until there are no more, at most `most` bytes; the bytes. */
static size_t fill(size_t size, size_t most, int *count)
{
    size_t bytes = 0;
    for (*count = 0; bytes < most; bytes += size) {
        void *block = malloc(size);
        if (!block)
            break;
        memset(block, *count, size);
        kept[(*count)++] = block;
    }
    return bytes;
}

static void drop(int count)
{
    while (count-- > 0)
        free(kept[count]);
}

static const char *filled(size_t got, size_t room) { return got >= room / 4 * 3 && got <= room + 4 * MIB ? "most of it" : "not"; }

int main(int argc, char **argv)
{
    size_t room = 114 * MIB;
    int count, failed = 0, moved = 0;
    struct rlimit limit;
    if (!strcmp(argv[1], "data")) {
        room = 40 * MIB;
        limit.rlim_cur = limit.rlim_max = room;
        setrlimit(RLIMIT_DATA, &limit);
    }
    if (!strcmp(argv[1], "late")) { /* What was there before is no way past it. */
        fill(10000, 10 * MIB, &count);
        drop(count);
        room = 60 * MIB;
        limit.rlim_cur = limit.rlim_max = room;
        setrlimit(RLIMIT_AS, &limit);
    }
    for (int round = 0; round < 3; round++) {
        printf("small: %s\n", filled(fill(10000, 2 * room, &count), room));
        for (int at = 0; at < count; at++) {
            int byte = *(unsigned char *)kept[at];
            errno = 7;
            void *less = realloc(kept[at], at % 3 ? 100 : 9000);
            failed += !less || errno != 7;
            kept[at] = less ? less : kept[at];
            moved += *(unsigned char *)kept[at] != byte || byte != (at & 255);
        }
        drop(count);
        printf("large: %s\n", filled(fill(MIB, 2 * room, &count), room));
        for (int at = 0; at < count; at++) {
            void *less = realloc(kept[at], at % 2 ? 1000 : 200000);
            failed += !less;
            kept[at] = less ? less : kept[at];
            moved += *(unsigned char *)kept[at] != (at & 255);
        }
        drop(count);
        /* (One that was left between them costs a block or two.) */
        printf("odd: %s\n", fill(5000000, 2 * room, &count) >= room / 2 ? "ok" : "not");
        drop(count);
        printf("tiny: %s\n", fill(400, 3000000, &count) >= 3000000 ? "ok" : "not");
        drop(count);
    }
    printf("shrinks that failed: %d, contents lost: %d\n", failed, moved);
}
