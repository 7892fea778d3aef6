// about: the stack ends in the middle of an allocation, and the handler of the fault jumps out of it (libsigsegv, interpreters): locks stayed taken
#include "../c/check.h"
#include <alloca.h>
#include <setjmp.h>
#include <sys/resource.h>

typedef struct Block { struct Block *next; } Block;
static sigjmp_buf out;
static Block *blocks;

static void faulted(int signal) { siglongjmp(out, 1); }

static __attribute__((noinline)) int down(int depth, size_t size)
{
    volatile char frame[64];
    Block *block = malloc(size + depth % 64);
    if (!block)
        return 0;
    block->next = blocks;
    blocks = block;
    frame[depth % 64] = 1;
    return down(depth + 1, size) + frame[3];
}

int main(void)
{
    static char other[65536];
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = 512 << 10;
    CHECK(!setrlimit(RLIMIT_STACK, &limit));
    CHECK(!sigaltstack(&(stack_t){.ss_sp = other, .ss_size = sizeof other}, NULL));
    struct sigaction action = {.sa_handler = faulted, .sa_flags = SA_ONSTACK};
    CHECK(!sigaction(SIGSEGV, &action, NULL));
    for (volatile int round = 0; round < 60; round++) {
        volatile char *shift = alloca(round * 56 % 4096 + 1);
        shift[0] = 1;
        if (!sigsetjmp(out, 1))
            down(0, 32 + round * 37 % 3000);
        while (blocks) {
            Block *block = blocks;
            blocks = block->next;
            free(block);
        }
    }
    say("ok\n");
    return 0;
}
