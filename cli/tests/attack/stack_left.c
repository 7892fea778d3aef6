// about: looked 4 KiB further down the stack than it takes: what had just 4 KiB left died in every call that is not fast
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

/* What docs/limits.md promises, and the frame of `body` with what it is started by. */
enum { ROOM = 4096 + 128, BLOCKS = 4000 };

static ucontext_t back, there;
static void *block[BLOCKS];
static int call, at;
static size_t size;

static void body(void)
{
    switch (call) {
    case 0: block[at] = malloc(size); break;
    case 1: block[at] = realloc(block[at], size); break;
    case 2: free(block[at]), block[at] = NULL; break;
    case 3: block[at] = calloc(1, size); break;
    case 4: block[at] = aligned_alloc(64, size); break;
    case 5: malloc_trim(0); break;
    }
}

int main(void)
{
    long page = sysconf(_SC_PAGESIZE);
    char *low = mmap(NULL, page + 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (low == MAP_FAILED || mprotect(low, page, PROT_NONE))
        return 1;
    unsigned seed = 1;
    for (int round = 0; round < 20000; round++) {
        at = rand_r(&seed) % BLOCKS;
        size = 1 + rand_r(&seed) % (1 << (1 + rand_r(&seed) % (round % 50 ? 14 : 22)));
        call = round % 500 == 499 ? 5 : !block[at] ? (int[]){0, 3, 4}[rand_r(&seed) % 3] : 1 + rand_r(&seed) % 2;
        getcontext(&there);
        there.uc_stack.ss_sp = low + page;
        there.uc_stack.ss_size = ROOM;
        there.uc_link = &back;
        makecontext(&there, body, 0);
        if (swapcontext(&back, &there))
            return 1;
        if (block[at])
            *(volatile char *)block[at] = 1;
    }
    for (at = 0; at < BLOCKS; at++)
        free(block[at]);
    puts("fine");
    return 0;
}
