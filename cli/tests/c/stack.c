/* How much stack the allocator takes: a thread paints its own stack below itself, calls, and looks how deep the paint
 * is gone. Prints the deepest of each entry point with `table`; ends with 1 where one passes BOUND (docs/limits.md). */
#include "check.h"
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PAINT = 40 << 10, BLOCKS = 4096 };

static size_t bound;
static FILE *nowhere;
static void *block[BLOCKS];
static size_t size_of[BLOCKS];
static uint64_t seed = 1;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (seed >> 8) % below;
}

/* Any size up to 8 MiB, small ones most often. */
static size_t any_size(void) { return 1 + draw(1u << (1 + draw(draw(8) ? 14 : 23))); }

static size_t slot(void) { return draw(BLOCKS); }
static void put(size_t at, void *fresh, size_t size)
{
    if (fresh) {
        block[at] = fresh, size_of[at] = size;
        *(volatile char *)fresh = 1;
    }
}

/* What is called, with its arguments drawn before: nothing of the test's own is on the stack but one frame. */
static size_t at, size, align;
static void *got;
static void do_malloc(void) { got = malloc(size); }
static void do_calloc(void) { got = calloc(1, size); }
static void do_realloc(void) { got = realloc(block[at], size); }
static void do_reallocarray(void) { got = reallocarray(block[at], 1, size); }
static void do_memalign(void) { got = memalign(align, size); }
static void do_aligned_alloc(void) { got = aligned_alloc(align, size); }
static void do_posix_memalign(void)
{
    if (posix_memalign(&got, align < sizeof got ? sizeof got : align, size))
        got = NULL;
}
static void do_valloc(void) { got = valloc(size); }
static void do_pvalloc(void) { got = pvalloc(size); }
static void do_free(void) { free(block[at]); }
static void do_usable(void) { (void)malloc_usable_size(block[at]); }
static void do_trim(void) { malloc_trim(0); }
static void do_mallinfo(void) { (void)mallinfo(); }
static void do_mallinfo2(void) { (void)mallinfo2(); }
static void do_mallopt(void) { mallopt(M_MMAP_THRESHOLD, 1 << 20); }
static void do_info(void) { malloc_info(0, nowhere); }
static void do_stats(void) { malloc_stats(); }
static void do_bad(void) { free((void *)&bound); }
static void do_bad_inside(void) { free((char *)block[at] + 1); }
static void do_fork(void)
{
    pid_t child = fork();
    if (!child)
        free(malloc(100)), _exit(0);
    if (child > 0)
        waitpid(child, NULL, 0);
}

static struct Call {
    const char *name;
    void (*volatile call)(void);
    enum { FRESH, AGAIN, GONE, LOOK } kind;
    unsigned often;
    size_t deepest;
} calls[] = {
    {"malloc", do_malloc, FRESH, 400}, {"calloc", do_calloc, FRESH, 100}, {"realloc", do_realloc, AGAIN, 200},
    {"reallocarray", do_reallocarray, AGAIN, 50}, {"memalign", do_memalign, FRESH, 50},
    {"aligned_alloc", do_aligned_alloc, FRESH, 50}, {"posix_memalign", do_posix_memalign, FRESH, 50},
    {"valloc", do_valloc, FRESH, 10}, {"pvalloc", do_pvalloc, FRESH, 10}, {"free", do_free, GONE, 700},
    {"malloc_usable_size", do_usable, LOOK, 20}, {"malloc_trim", do_trim, LOOK, 2},
    {"mallinfo", do_mallinfo, LOOK, 2}, {"mallinfo2", do_mallinfo2, LOOK, 2}, {"mallopt", do_mallopt, LOOK, 2},
    {"malloc_info", do_info, LOOK, 1}, {"malloc_stats", do_stats, LOOK, 1}, {"fork", do_fork, LOOK, 1},
    {"bad free", do_bad, LOOK, 1}, {"bad free inside", do_bad_inside, LOOK, 1},
};
enum { CALLS = sizeof calls / sizeof calls[0] };

/* The words of paint below this frame, kept out of every frame above. */
__attribute__((noinline)) static size_t depth_of(void (*call)(void))
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0) & ~(uintptr_t)15;
    /* Below the red zone of this function. */
    volatile uint64_t *top = (volatile uint64_t *)(here - 256), *low = (volatile uint64_t *)(here - PAINT);
    for (volatile uint64_t *word = low; word < top; word++)
        *word = 0x5aa5c33c5aa5c33cu;
    call();
    while (low < top && *low == 0x5aa5c33c5aa5c33cu)
        low++;
    return here - (uintptr_t)low;
}

static void *work(void *rounds_given)
{
    unsigned sum = 0;
    for (size_t which = 0; which < CALLS; which++)
        sum += calls[which].often;
    for (size_t round = *(size_t *)rounds_given; round; round--) {
        uint64_t number = draw(sum);
        struct Call *call = calls;
        while (number >= call->often)
            number -= call->often, call++;
        at = slot(), size = any_size(), align = (size_t)1 << draw(14);
        if (call->kind == FRESH && block[at])
            call = &calls[9];
        if (call->kind == LOOK && !block[at])
            continue;
        if (call >= &calls[CALLS - 2] && !getenv("LD_PRELOAD"))
            continue; /* the C library's own free aborts */
        size_t depth = depth_of(call->call);
        if (depth > call->deepest)
            call->deepest = depth;
        switch (call->kind) {
        case FRESH: put(at, got, size); break;
        case AGAIN: put(at, got, size); break;
        case GONE: block[at] = NULL; break;
        case LOOK: break;
        }
        /* Now and then all of a kind, so that lists and sheaves fill and empty. */
        if (!draw(20000))
            for (at = 0; at < BLOCKS; at++) {
                size_t depth = depth_of(do_free);
                block[at] = NULL;
                if (depth > calls[9].deepest)
                    calls[9].deepest = depth;
            }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc > 2, "stack BOUND ROUNDS [table]");
    bound = strtoul(argv[1], NULL, 0);
    size_t rounds = strtoul(argv[2], NULL, 0);
    nowhere = fopen("/dev/null", "w");
    CHECK(nowhere);
    for (size_t which = 0; which < CALLS; which++) /* whatever a first call does for libc */
        if (calls[which].kind == LOOK && which < CALLS - 3)
            calls[which].call();
    pthread_attr_t attributes;
    pthread_t thread;
    void *stack = mmap(NULL, 256 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED && !pthread_attr_init(&attributes));
    CHECK(!pthread_attr_setstack(&attributes, stack, 256 << 10));
    CHECK(!pthread_create(&thread, &attributes, work, &rounds) && !pthread_join(thread, NULL));
    int passed = 0;
    for (size_t which = 0; which < CALLS; which++) {
        if (argc > 3 || calls[which].deepest > bound)
            printf("%-20s %6zu\n", calls[which].name, calls[which].deepest);
        passed |= calls[which].deepest > bound;
    }
    return passed;
}
