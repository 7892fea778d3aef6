// about: a block of more than 1 GiB was shrunk: what the system mapped where it had been was taken for a part of it, and a look at a pointer there crashed
#include "../c/check.h"
#include <malloc.h>
#include <sys/mman.h>

int main(void)
{
    char *block = malloc((1 << 30) + 4096);
    CHECK(block);
    block[0] = 1;
    block = realloc(block, 385024);
    CHECK(block && block[0] == 1);
    /* Where its end was, if that is free now. */
    for (size_t at = 16 << 20; at < (size_t)900 << 20; at += 128 << 20) {
        char *there = (char *)(((uintptr_t)block + at) & -(uintptr_t)4096);
        char *mapped = mmap(there, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(mapped != MAP_FAILED);
        for (size_t page = 0; page < 1024; page += 64)
            CHECK(malloc_usable_size(mapped + page * 4096 + 16) == 0);
        for (size_t page = 1; page < 1024; page += 64)
            CHECK(malloc_usable_size(mapped + page * 4096) == 0);
    }
    free(block);
    say("ok\n");
    return 0;
}
