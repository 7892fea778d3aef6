/* Pointers that free must not take. Prints each one's address; the caller looks
 * for it on standard error. Plain glibc aborts on most of them. */
#include "check.h"
#include <malloc.h>
#include <sys/mman.h>

/* The compiler must not know where the pointer came from. */
static void *volatile opaque;
static void *hide(void *pointer) { opaque = pointer; return opaque; }

static void bad(void *pointer)
{
    char text[32];
    snprintf(text, sizeof text, "bad %p\n", pointer);
    say(text);
    errno = 123;
    free(hide(pointer));
    CHECK(errno == 123);
}

static Held held;

static char fixed[4096] __attribute__((aligned(4096)));

static void stack(void)
{
    char local[256];
    bad(local + 16);
}

static void fixed_data(void) { bad(fixed), bad(fixed + 32); }

static void mapped(void)
{
    char *page = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    bad(page), bad(page + 4096 + 16);
    munmap(page, 1 << 20);
    bad(page + 64); /* nothing there any more */
}

static void odd_addresses(void)
{
    bad((void *)1), bad((void *)4096), bad((void *)-1), bad((void *)-4096);
    bad((void *)((uintptr_t)1 << 47)), bad((void *)((uintptr_t)1 << 56)), bad((void *)((uintptr_t)1 << 63));
}

/* Inside a live block: unaligned, and aligned but not its start. */
static void interior(void)
{
    static const size_t sizes[] = {100, 4000, 20000, 100000, 4 << 20};
    for (size_t at = 0; at < sizeof sizes / sizeof sizes[0]; at++) {
        char *block = malloc(sizes[at]);
        mark(block, sizes[at]);
        bad(block + 1);
        malloc_trim(0);
        if (sizes[at] > 32768) {
            bad(block + 16);
            bad(block + 8192);
        }
        drop(block);
    }
}

/* Small blocks come back to their slab in bulk, only there a wrong start shows. */
static void small_interior(void)
{
    enum { COUNT = 40000 };
    static char *block[COUNT];
    for (int at = 0; at < COUNT; at++)
        block[at] = malloc(96), mark(block[at], 96);
    bad(block[COUNT / 2] + 32);
    for (int at = 0; at < COUNT; at++)
        drop(block[at]);
    malloc_trim(0);
}

static void twice_large(void)
{
    char *block = malloc(1 << 20);
    free(hide(block));
    bad(block);
    block = malloc(40 << 20);
    free(hide(block));
    bad(block);
}

/* Seen when the block returns to its slab: free enough for all caches to spill. */
static void twice_small(void)
{
    enum { COUNT = 100000 };
    static void *block[COUNT];
    for (int at = 0; at < COUNT; at++)
        block[at] = malloc(48), mark(block[at], 48);
    void *victim = block[COUNT / 2];
    for (int at = 0; at < COUNT; at++)
        drop(block[at]);
    malloc_trim(0);
    bad(victim);
    for (int at = 0; at < COUNT; at++)
        block[at] = malloc(512), mark(block[at], 512);
    for (int at = 0; at < COUNT; at++)
        drop(block[at]);
    malloc_trim(0);
}

/* Both in one cache at a time; once all is back, no block may be handed out twice. */
static void twice_at_once(void)
{
    enum { COUNT = 100000 };
    static void *block[COUNT];
    for (int at = 0; at < COUNT; at++)
        block[at] = malloc(48);
    char text[32];
    snprintf(text, sizeof text, "bad %p\n", block[0]);
    say(text);
    free(hide(block[0])), free(hide(block[0]));
    for (int at = 1; at < COUNT; at++)
        free(block[at]);
    malloc_trim(0);
    for (int at = 0; at < COUNT; at++)
        block[at] = malloc(48), mark(block[at], 48);
    for (int at = 0; at < COUNT; at++)
        drop(block[at]);
}

static void foreign_realloc(void)
{
    char text[32];
    snprintf(text, sizeof text, "bad %p\n", (void *)fixed);
    say(text);
    errno = 0;
    CHECK(realloc(hide(fixed), 100) == NULL && errno == ENOMEM);
    CHECK(malloc_usable_size(hide(fixed)) == 0);
}

static void many(void)
{
    for (int at = 0; at < 1000; at++)
        free(hide(fixed + at));
}

int main(int argc, char **argv)
{
    static const Case cases[] = {
        {"stack", stack}, {"fixed", fixed_data}, {"mapped", mapped}, {"odd", odd_addresses}, {"interior", interior},
        {"small_interior", small_interior}, {"twice_large", twice_large}, {"twice_small", twice_small},
        {"twice_at_once", twice_at_once}, {"foreign_realloc", foreign_realloc}, {"many", many},
    };
    churn(&held, 2000);
    RUN_CASES(cases);
    churn(&held, 50000); /* the heap goes on as if nothing had been */
    churn_end(&held);
    say("survived\n");
    return 0;
}
