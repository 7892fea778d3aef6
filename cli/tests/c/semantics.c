/* What the C standard, POSIX and glibc 2.36 promise of malloc and its family,
 * one numbered case per rule. Passes on plain glibc. */
#include "check.h"
#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>

#define SIZES(...) static const size_t sizes[] = {__VA_ARGS__}
#define EACH(at) for (size_t at = 0; at < sizeof sizes / sizeof sizes[0]; at++)
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define TOO_MUCH ((size_t)PTRDIFF_MAX + 1)

/* The compiler must not reason about the sizes. */
static volatile size_t opaque;
static size_t hide(size_t size) { opaque = size; return opaque; }

#define REFUSED(call)                                                   \
    do {                                                                \
        errno = 0;                                                      \
        void *refused = (call);                                         \
        CHECK(refused == NULL, "%s gave %p", #call, refused);           \
        CHECK(errno == ENOMEM, "%s", #call);                            \
    } while (0)

static int all_zero(const unsigned char *bytes, size_t size)
{
    return size == 0 || (bytes[0] == 0 && !memcmp(bytes, bytes + 1, size - 1));
}

static void s01_malloc_zero_is_unique(void)
{
    void *block[100];
    for (int at = 0; at < 100; at++) {
        CHECK(block[at] = malloc(hide(0)));
        for (int other = 0; other < at; other++)
            CHECK(block[at] != block[other]);
    }
    for (int at = 0; at < 100; at++)
        free(block[at]);
    void *zero = calloc(hide(0), 10), *nought = calloc(10, hide(0));
    CHECK(zero && nought && zero != nought);
    free(zero), free(nought);
}

static void s02_free_null(void)
{
    errno = 123;
    free(NULL);
    CHECK(errno == 123);
}

static void s03_calloc_overflow(void)
{
    REFUSED(calloc(hide(SIZE_MAX), 2));
    REFUSED(calloc(hide(2), SIZE_MAX));
    REFUSED(calloc(hide(SIZE_MAX / 2), 3));
    REFUSED(calloc(hide((size_t)1 << 32), (size_t)1 << 32));
    REFUSED(calloc(hide(((size_t)1 << 32) + 1), (size_t)1 << 32));
    REFUSED(calloc(hide(TOO_MUCH), 1));
    REFUSED(calloc(1, hide(SIZE_MAX)));
}

static void s04_reallocarray_overflow(void)
{
    char *block = malloc(100);
    memset(block, 'x', 100);
    REFUSED(reallocarray(block, hide(SIZE_MAX), 2));
    REFUSED(reallocarray(block, hide((size_t)1 << 33), (size_t)1 << 33));
    REFUSED(reallocarray(NULL, hide(SIZE_MAX / 2), 4));
    for (int at = 0; at < 100; at++)
        CHECK(block[at] == 'x');
    block = reallocarray(block, 1000, 10);
    CHECK(block && block[99] == 'x' && malloc_usable_size(block) >= 10000);
    free(block);
}

static void s05_malloc_beyond_ptrdiff(void)
{
    REFUSED(malloc(hide(TOO_MUCH)));
    REFUSED(malloc(hide(TOO_MUCH - 1)));
    for (size_t less = 0; less < 70000; less = less * 3 / 2 + 1)
        REFUSED(malloc(hide(SIZE_MAX - less)));
    REFUSED(malloc(hide((size_t)1 << 48)));
    REFUSED(realloc(NULL, hide(SIZE_MAX - 15)));
    REFUSED(calloc(1, hide(SIZE_MAX - 4095)));
    REFUSED(valloc(hide(SIZE_MAX - 10)));
    REFUSED(pvalloc(hide(SIZE_MAX - 10)));
    REFUSED(memalign(64, hide(SIZE_MAX - 10)));
    REFUSED(aligned_alloc(64, hide(SIZE_MAX - 63)));
    REFUSED(memalign(4096, hide(TOO_MUCH)));
}

static void s06_realloc_null_is_malloc(void)
{
    SIZES(0, 1, 100, 5000, 40000, 3 * MIB);
    EACH(at) {
        void *block = realloc(NULL, hide(sizes[at]));
        CHECK(block && malloc_usable_size(block) >= sizes[at]);
        memset(block, 1, sizes[at]);
        free(block);
    }
}

static void s07_realloc_to_zero_frees(void)
{
    SIZES(0, 1, 100, 5000, 40000, 3 * MIB);
    EACH(at) {
        for (int round = 0; round < 200; round++) { /* would run out if it did not free */
            void *block = malloc(sizes[at]);
            CHECK(block);
            CHECK(realloc(block, hide(0)) == NULL);
        }
    }
    void *block = malloc(10);
    CHECK(reallocarray(block, hide(0), 10) == NULL);
}

static void fill(unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t at = 0; at < size; at += at < 4096 || at + 4096 > size ? 1 : 509)
        bytes[at] = (unsigned char)mix(at + seed);
}

static void filled(const unsigned char *bytes, size_t size, size_t of, unsigned seed)
{
    for (size_t at = 0; at < of && at < size; at += at < 4096 || at + 4096 > size ? 1 : 509)
        CHECK(bytes[at] == (unsigned char)mix(at + seed), "byte %zu of %zu (now %zu)", at, size, of);
}

static void s08_realloc_keeps_contents(void)
{
    SIZES(1, 16, 17, 100, 112, 1000, 1024, 4000, 4096, 8200, 20000, 32 * KIB - 8, 32 * KIB, 32 * KIB + 1, 36 * KIB,
          100000, 256 * KIB, 300000, MIB, 3 * MIB, 7 * MIB + 5, 16 * MIB);
    EACH(from) EACH(to) {
        unsigned char *block = malloc(sizes[from]);
        fill(block, sizes[from], (unsigned)from);
        unsigned char *moved = realloc(block, sizes[to]);
        CHECK(moved && (uintptr_t)moved % 16 == 0 && malloc_usable_size(moved) >= sizes[to]);
        filled(moved, sizes[from], sizes[to], (unsigned)from);
        fill(moved, sizes[to], 7);
        filled(moved, sizes[to], sizes[to], 7);
        free(moved);
    }
}

static void s09_realloc_large(void)
{
    SIZES(64 * MIB, 100, 33 * MIB, 64 * MIB, 40 * KIB, 48 * MIB + 4096, 2 * MIB);
    unsigned char *block = malloc(1 * MIB);
    size_t size = MIB;
    fill(block, size, 3);
    EACH(at) {
        block = realloc(block, sizes[at]);
        CHECK(block);
        filled(block, size, sizes[at], 3);
        size = sizes[at];
        fill(block, size, 3);
    }
    free(block);
}

static void s10_realloc_grows_like_a_vector(void)
{
    for (int kind = 0; kind < 2; kind++) {
        uint32_t *vector[8] = {0};
        size_t room[8] = {0};
        for (size_t at = 0; at < 500000; at++)
            for (int which = 0; which < (at < 60000 ? 8 : 2); which++) {
                if (at >= room[which]) {
                    room[which] = kind ? room[which] + 2500 : room[which] * 3 / 2 + 1;
                    vector[which] = realloc(vector[which], room[which] * 4);
                    CHECK(vector[which]);
                }
                vector[which][at] = (uint32_t)(at * 8 + (size_t)which);
            }
        for (int which = 0; which < 8; which++) {
            for (size_t at = 0; at < (which < 2 ? 500000 : 60000); at++)
                CHECK(vector[which][at] == at * 8 + (size_t)which);
            free(vector[which]);
        }
    }
}

static void s11_failing_realloc_keeps_the_block(void)
{
    SIZES(1, 100, 5000, 33000, 100000, 3 * MIB, 40 * MIB);
    EACH(at) {
        unsigned char *block = malloc(sizes[at]);
        fill(block, sizes[at], 9);
        REFUSED(realloc(block, hide(TOO_MUCH - 4096)));
        REFUSED(realloc(block, hide(SIZE_MAX)));
        REFUSED(realloc(block, hide((size_t)1 << 47)));
        filled(block, sizes[at], sizes[at], 9);
        free(block);
    }
}

static void s12_posix_memalign_einval(void)
{
    SIZES(0, 1, 2, 3, 4, 6, 7, 9, 12, 24, 48, 100, 4095, SIZE_MAX);
    EACH(at) {
        void *mark = &errno, *block = mark;
        errno = 123;
        CHECK(posix_memalign(&block, hide(sizes[at]), 100) == EINVAL, "alignment %zu", sizes[at]);
        CHECK(block == mark);
        CHECK(errno == 123);
    }
    void *block;
    CHECK(posix_memalign(&block, 8, 100) == 0);
    free(block);
    CHECK(posix_memalign(&block, 64, hide(0)) == 0);
    free(block);
}

static void s13_posix_memalign_enomem(void)
{
    SIZES(8, 16, 64, 4096, 2 * MIB);
    EACH(at) {
        void *mark = &errno, *block = mark;
        CHECK(posix_memalign(&block, sizes[at], hide(SIZE_MAX - 100)) == ENOMEM);
        errno = 0;
        CHECK(posix_memalign(&block, sizes[at], hide(TOO_MUCH)) == ENOMEM && errno == ENOMEM);
        CHECK(block == mark);
    }
}

static void s14_absurd_alignment(void)
{
    REFUSED(memalign(hide((size_t)1 << 62), 10));
    REFUSED(memalign(hide((size_t)1 << 63), 10));
    REFUSED(aligned_alloc(hide((size_t)1 << 62), 10));
    errno = 0;
    CHECK(memalign(hide(((size_t)1 << 63) + 1), 10) == NULL && errno == EINVAL);
    void *mark = &errno, *block = mark;
    CHECK(posix_memalign(&block, hide((size_t)1 << 62), 10) == ENOMEM && block == mark);
}

static void s15_alignment_honoured(void)
{
    SIZES(0, 1, 24, 100, 4000, 5000, 33000, 70000, 3 * MIB);
    void *kept[32 * 9];
    size_t count = 0;
    for (size_t align = 16; align <= 64 * MIB; align *= 2)
        EACH(at) {
            unsigned char *block;
            if (at % 3 == 0)
                CHECK(posix_memalign((void **)&block, align, sizes[at]) == 0);
            else if (at % 3 == 1)
                block = aligned_alloc(align, sizes[at]);
            else
                block = memalign(align, sizes[at]);
            CHECK(block && (uintptr_t)block % align == 0, "align %zu, size %zu: %p", align, sizes[at], (void *)block);
            CHECK(malloc_usable_size(block) >= sizes[at]);
            fill(block, sizes[at], (unsigned)count);
            kept[count++] = block;
        }
    for (size_t which = 0; which < count; which++) {
        size_t size = sizes[which % 9];
        filled(kept[which], size, size, (unsigned)which);
        void *moved = realloc(kept[which], size + 3000);
        CHECK(moved);
        filled(moved, size, size, (unsigned)which);
        free(moved);
    }
}

static void s16_odd_alignments_round_up(void)
{
    static const size_t pairs[][2] = {{0, 16}, {1, 16}, {3, 16}, {17, 32}, {24, 32}, {33, 64}, {48, 64}, {100, 128}, {1000, 1024}, {4097, 8192}, {70000, 131072}};
    for (size_t at = 0; at < sizeof pairs / sizeof pairs[0]; at++)
        for (size_t size = 1; size < 100000; size = size * 5 + 3) {
            void *block = memalign(hide(pairs[at][0]), size);
            CHECK(block && (uintptr_t)block % pairs[at][1] == 0, "memalign(%zu)", pairs[at][0]);
            memset(block, 1, size);
            free(block);
            /* glibc 2.36 has one function under both names; 2.38 refuses here. */
            errno = 0;
            block = aligned_alloc(hide(pairs[at][0]), size);
            CHECK(block ? (uintptr_t)block % pairs[at][1] == 0 : errno == EINVAL);
            free(block);
        }
}

static void s17_valloc_and_pvalloc(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    SIZES(0, 1, 4095, 4096, 4097, 40000, 3 * MIB + 1);
    EACH(at) {
        void *block = valloc(sizes[at]);
        CHECK(block && (uintptr_t)block % page == 0 && malloc_usable_size(block) >= sizes[at]);
        memset(block, 1, sizes[at]);
        free(block);
        block = pvalloc(sizes[at]);
        size_t whole = (sizes[at] + page - 1) / page * page;
        CHECK(block && (uintptr_t)block % page == 0 && malloc_usable_size(block) >= whole);
        memset(block, 1, whole);
        free(block);
    }
}

static void s18_usable_size_is_writable(void)
{
    CHECK(malloc_usable_size(NULL) == 0);
    unsigned char *block[1400];
    size_t usable[1400], count = 0;
    for (size_t size = 0; size < 5 * MIB && count < 1400; size += size < 1100 ? 1 : size / 16) {
        block[count] = malloc(size);
        usable[count] = malloc_usable_size(block[count]);
        CHECK(usable[count] >= size);
        memset(block[count], (int)(count % 251), usable[count]);
        count++;
    }
    for (size_t at = 0; at < count; at++) {
        CHECK(block[at][0] == at % 251);
        CHECK(!memcmp(block[at], block[at] + 1, usable[at] - 1), "block %zu of %zu bytes overlaps", at, usable[at]);
        CHECK(malloc_usable_size(block[at]) == usable[at]);
        free(block[at]);
    }
}

static void s19_every_size_is_aligned(void)
{
    unsigned char *block[64] = {0};
    for (size_t size = 1; size <= 70000; size++) {
        unsigned at = size % 64;
        if (block[at]) {
            CHECK(block[at][0] == at && block[at][size - 65] == at);
            free(block[at]);
        }
        block[at] = malloc(size);
        CHECK(block[at] && (uintptr_t)block[at] % 16 == 0, "size %zu at %p", size, (void *)block[at]);
        block[at][0] = block[at][size - 1] = (unsigned char)at;
    }
    for (int at = 0; at < 64; at++)
        free(block[at]);
}

static void dirty_then_calloc(size_t size, size_t count)
{
    unsigned char *block[256];
    CHECK(count <= 256);
    for (int round = 0; round < 2; round++) {
        for (size_t at = 0; at < count; at++) {
            block[at] = malloc(size);
            CHECK(block[at]);
            memset(block[at], 0xa5, malloc_usable_size(block[at]));
        }
        for (size_t at = 0; at < count; at++)
            free(block[at]);
        if (round)
            malloc_trim(0);
        for (size_t at = 0; at < count; at++) {
            block[at] = at % 2 ? calloc(1, size) : calloc(size, 1);
            CHECK(block[at]);
            CHECK(all_zero(block[at], size), "calloc(%zu), number %zu, round %d", size, at, round);
            memset(block[at], 0x5a, size);
        }
        for (size_t at = 0; at < count; at++)
            free(block[at]);
    }
}

static void s20_calloc_zeroes_small(void)
{
    for (size_t size = 1; size < 32 * KIB; size += size / 3 + 1)
        dirty_then_calloc(size, 200);
}

static void s21_calloc_zeroes_medium(void)
{
    SIZES(32 * KIB, 32 * KIB + 1, 36 * KIB, 48 * KIB, 100000, 128 * KIB, 256 * KIB, 500000, MIB - 1);
    EACH(at)
        dirty_then_calloc(sizes[at], 16);
}

static void s22_calloc_zeroes_large(void)
{
    SIZES(MIB, MIB + 1, 2 * MIB, 5 * MIB + 12345, 16 * MIB, 40 * MIB);
    EACH(at)
        dirty_then_calloc(sizes[at], 2);
    /* What realloc shrank or moved is dirty too. */
    for (int round = 0; round < 20; round++) {
        unsigned char *block = malloc(4 * MIB);
        memset(block, 0xa5, 4 * MIB);
        block = realloc(block, round % 2 ? MIB : 9 * MIB);
        unsigned char *zeroed = calloc(1, 3 * MIB);
        CHECK(all_zero(zeroed, 3 * MIB), "round %d", round);
        memset(zeroed, 0xa5, 3 * MIB);
        free(block), free(zeroed);
        zeroed = calloc(1, 9 * MIB);
        CHECK(all_zero(zeroed, 9 * MIB), "round %d", round);
        memset(zeroed, 0xa5, 9 * MIB);
        free(zeroed);
    }
    /* A locked page makes part of an advice fail. */
    unsigned char *block = malloc(8 * MIB);
    memset(block, 0xa5, 8 * MIB);
    unsigned char *middle = (unsigned char *)(((uintptr_t)block + 4 * MIB) & ~(uintptr_t)4095);
    int locked = mlock(middle, 4096) == 0;
    free(block);
    malloc_trim(0);
    block = calloc(1, 8 * MIB);
    CHECK(all_zero(block, 8 * MIB), "after a lock (%d)", locked);
    free(block);
}

static void s23_errno_kept_by_free(void)
{
    SIZES(1, 100, 5000, 33000, 100000, MIB, 3 * MIB, 100 * MIB);
    EACH(at) {
        void *block[64];
        int count = sizes[at] > MIB ? 2 : 64;
        for (int which = 0; which < count; which++) {
            CHECK(block[which] = malloc(sizes[at]));
            memset(block[which], 1, sizes[at] > 4 * MIB ? 4 * MIB : sizes[at]);
        }
        for (int which = 0; which < count; which++) {
            errno = 123;
            free(block[which]);
            CHECK(errno == 123, "free of %zu bytes", sizes[at]);
        }
    }
}

static void s24_malloc_trim(void)
{
    void **block = malloc(100000 * sizeof *block);
    for (int at = 0; at < 100000; at++)
        block[at] = memset(malloc(400), 1, 400);
    for (int at = 0; at < 100000; at++)
        free(block[at]);
    free(block);
    int trimmed = malloc_trim(0);
    CHECK(trimmed == 0 || trimmed == 1);
    trimmed = malloc_trim(SIZE_MAX);
    CHECK(trimmed == 0 || trimmed == 1);
}

static void s25_mallinfo(void)
{
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    void **block = malloc(100000 * sizeof *block);
    struct mallinfo2 before = mallinfo2();
    struct mallinfo old_before = mallinfo();
    for (int at = 0; at < 100000; at++)
        CHECK(block[at] = malloc(100));
    struct mallinfo2 during = mallinfo2();
    struct mallinfo old_during = mallinfo();
    CHECK(during.uordblks >= before.uordblks + 9000000, "%zu then %zu", before.uordblks, during.uordblks);
    CHECK(old_during.uordblks - old_before.uordblks >= 9000000);
    CHECK(during.arena + during.hblkhd >= 10000000);
    for (int at = 0; at < 100000; at++)
        free(block[at]);
    struct mallinfo2 after = mallinfo2();
    CHECK(after.uordblks + 8000000 <= during.uordblks, "%zu then %zu", during.uordblks, after.uordblks);
    free(block);
    before = mallinfo2();
    void *large = malloc(50 * MIB);
    during = mallinfo2();
    CHECK(during.uordblks + during.hblkhd >= before.uordblks + before.hblkhd + 50 * MIB);
    free(large);
    // What was freed a moment ago is not in use, wherever it waits for the next request.
    void *areas[8];
    for (int at = 0; at < 8; at++)
        CHECK(areas[at] = malloc(900000));
    during = mallinfo2();
    for (int at = 0; at < 8; at++)
        free(areas[at]);
    after = mallinfo2();
    CHECK(after.uordblks + after.hblkhd + 6000000 <= during.uordblks + during.hblkhd, "%zu then %zu", during.hblkhd, after.hblkhd);
}

static void s26_malloc_info(void)
{
    static char text[1 << 20];
    FILE *file = tmpfile();
    CHECK(file);
    CHECK(malloc_info(0, file) == 0);
    rewind(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    CHECK(length > 20 && !memcmp(text, "<malloc", 7) && strstr(text, "</malloc>"), "%zu bytes", length);
    CHECK(malloc_info(hide(1) != 0, stdout) == EINVAL);
}

static void s27_malloc_stats(void)
{
    FILE *file = tmpfile();
    int kept = dup(2);
    dup2(fileno(file), 2);
    malloc_stats();
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    static const char *lines[] = {"Arena 0:", "system bytes     =", "in use bytes     =", "Total (incl. mmap):",
                                  "max mmap regions =", "max mmap bytes   ="};
    char text[4096];
    ssize_t length = pread(fileno(file), text, sizeof text - 1, 0);
    CHECK(length > 0);
    text[length] = 0;
    for (size_t at = 0; at < sizeof lines / sizeof lines[0]; at++)
        CHECK(strstr(text, lines[at]), "%s", lines[at]);
    fclose(file);
}

static void s28_mallopt(void)
{
    static const int names[] = {M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX, M_ARENA_TEST, M_ARENA_MAX,
                                M_MXFAST,         M_PERTURB,        M_KEEP,    M_NLBLKS,   0,            5,
                                12345,            -9,               -100};
    for (size_t at = 0; at < sizeof names / sizeof names[0]; at++) {
        int answer = mallopt(names[at], names[at] == M_PERTURB ? 0 : 64);
        CHECK(answer == 1, "mallopt(%d) = %d", names[at], answer);
    }
    static const struct {
        int value, answer;
    } fast[] = {{-1, 0}, {0, 1}, {160, 1}, {161, 0}, {100000, 0}, {64, 1}};
    for (size_t at = 0; at < sizeof fast / sizeof fast[0]; at++) {
        int answer = mallopt(M_MXFAST, fast[at].value);
        CHECK(answer == fast[at].answer, "mallopt(M_MXFAST, %d) = %d", fast[at].value, answer);
    }
    free(malloc(100)), free(malloc(10 * MIB));
}

static void s29_c23_sized_frees(void)
{
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void (*free_aligned_sized)(void *, size_t, size_t) = (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    if (!free_sized || !free_aligned_sized) {
        say("skipped: this C library has no free_sized\n");
        return;
    }
    free_sized(NULL, 0), free_aligned_sized(NULL, 64, 64);
    SIZES(0, 1, 100, 5000, 33000, 100000, 3 * MIB);
    for (int round = 0; round < 300; round++)
        EACH(at) {
            errno = 123;
            void *block = malloc(sizes[at]);
            free_sized(block, sizes[at]);
            block = calloc(1, sizes[at]);
            free_sized(block, sizes[at]);
            block = realloc(malloc(10), sizes[at] + 1);
            free_sized(block, sizes[at] + 1);
            block = aligned_alloc(64, sizes[at]);
            free_aligned_sized(block, 64, sizes[at]);
            block = aligned_alloc(8192, sizes[at]);
            free_aligned_sized(block, 8192, sizes[at]);
            CHECK(errno == 123);
        }
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t), *__libc_valloc(size_t), *__libc_pvalloc(size_t);
extern void __libc_free(void *);
extern int __posix_memalign(void **, size_t, size_t);

static void s30_libc_names_are_the_same_heap(void)
{
    SIZES(0, 1, 100, 5000, 33000, 100000, 3 * MIB);
    for (int round = 0; round < 50; round++)
        EACH(at) {
            void *block[8];
            block[0] = __libc_malloc(sizes[at]);
            block[1] = __libc_calloc(1, sizes[at]);
            block[2] = __libc_realloc(malloc(8), sizes[at] + 1);
            block[3] = __libc_memalign(128, sizes[at]);
            block[4] = __libc_valloc(sizes[at]);
            block[5] = __libc_pvalloc(sizes[at]);
            block[6] = realloc(__libc_malloc(8), sizes[at] + 1);
            block[7] = malloc(sizes[at]);
            for (int which = 0; which < 7; which++) {
                CHECK(block[which] && malloc_usable_size(block[which]) >= sizes[at]);
                memset(block[which], which, sizes[at]);
            }
            __libc_free(block[7]);
            for (int which = 0; which < 7; which++)
                which % 2 ? free(block[which]) : __libc_free(block[which]);
            void *(*other)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "__libc_malloc");
            free(other(sizes[at]));
        }
    int (*posix)(void **, size_t, size_t) = (int (*)(void **, size_t, size_t))dlsym(RTLD_DEFAULT, "__posix_memalign");
    void *block;
    if (posix) {
        CHECK(posix(&block, 256, 100) == 0 && (uintptr_t)block % 256 == 0);
        free(block);
    }
}

static void s31_libc_itself_uses_the_heap(void)
{
    char *line = NULL, *text = strdup("one"), *made;
    size_t room = 0;
    CHECK(asprintf(&made, "%s %d", text, 2) == 5);
    FILE *file = tmpfile();
    fprintf(file, "%0300000d\n", 5);
    rewind(file);
    CHECK(getline(&line, &room, file) == 300001);
    fclose(file);
    char *stream_text;
    size_t stream_size;
    FILE *stream = open_memstream(&stream_text, &stream_size);
    for (int at = 0; at < 10000; at++)
        fprintf(stream, "%d ", at);
    fclose(stream);
    CHECK(stream_size == 48890);
    free(stream_text), free(line), free(text), free(made);
}

static void s32_blocks_never_overlap(void)
{
    static Held held;
    held.random.state = 32;
    churn(&held, 200000);
    churn_end(&held);
}

/* Freed and taken again in any order; what others have mapped near by stays. */
static void s33_blocks_of_half_a_gib_come_and_go(void)
{
    enum { NEAR = 4 };
    size_t size = 520 * MIB;
    unsigned char *block[4] = {0}, *near[NEAR];
    unsigned char *some = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uintptr_t at = 0; at < NEAR; at++) {
        void *wanted = (void *)(((uintptr_t)some >> 30 << 30) - (at << 30));
        near[at] = mmap(wanted, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(near[at] != MAP_FAILED);
        *near[at] = 7;
    }
    Random random = {33};
    for (int round = 0; round < 300; round++) {
        unsigned which = next(&random) % 4;
        if (block[which])
            CHECK(block[which][0] == which && block[which][size - 1] == which);
        free(block[which]);
        void *got = NULL;
        size_t align = round % 2 ? 16 : (size_t)4096 << next(&random) % 12;
        CHECK(!posix_memalign(&got, align, size), "round %d", round);
        CHECK((uintptr_t)got % align == 0, "%p is not aligned to %zu", got, align);
        block[which] = got;
        block[which][0] = block[which][size - 1] = (unsigned char)which;
    }
    for (int which = 0; which < 4; which++)
        free(block[which]);
    for (int at = 0; at < NEAR; at++)
        CHECK(*near[at] == 7 && !munmap(near[at], 4096));
    munmap(some, 4096);
}

int main(int argc, char **argv)
{
#define S(name) {#name, name}
    static const Case cases[] = {
        S(s01_malloc_zero_is_unique), S(s02_free_null), S(s03_calloc_overflow), S(s04_reallocarray_overflow),
        S(s05_malloc_beyond_ptrdiff), S(s06_realloc_null_is_malloc), S(s07_realloc_to_zero_frees),
        S(s08_realloc_keeps_contents), S(s09_realloc_large), S(s10_realloc_grows_like_a_vector),
        S(s11_failing_realloc_keeps_the_block), S(s12_posix_memalign_einval), S(s13_posix_memalign_enomem),
        S(s14_absurd_alignment), S(s15_alignment_honoured), S(s16_odd_alignments_round_up),
        S(s17_valloc_and_pvalloc), S(s18_usable_size_is_writable), S(s19_every_size_is_aligned),
        S(s20_calloc_zeroes_small), S(s21_calloc_zeroes_medium), S(s22_calloc_zeroes_large),
        S(s23_errno_kept_by_free), S(s24_malloc_trim), S(s25_mallinfo), S(s26_malloc_info), S(s27_malloc_stats),
        S(s28_mallopt), S(s29_c23_sized_frees), S(s30_libc_names_are_the_same_heap),
        S(s31_libc_itself_uses_the_heap), S(s32_blocks_never_overlap),
        S(s33_blocks_of_half_a_gib_come_and_go),
    };
    return RUN_CASES(cases);
}
