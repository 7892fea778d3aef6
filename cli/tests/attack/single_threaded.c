// about: with the keeper beside it a program of one thread got the C library's real locks, and stdio half as fast
#include "../c/check.h"
#include <sys/single_threaded.h>

int main(void)
{
    /* (Not "the stream needs its lock", which the C library decides by that.) */
    enum { NEEDS_LOCK = 128 };
    for (int i = 0; i < 1000; i++)
        memset(malloc(65536), i, 65536);
    usleep(1200000);
    for (int i = 0; i < 1000; i++)
        free(malloc(100000 + i));
    printf("single: %d, locks: %d\n", __libc_single_threaded, stdout->_flags2 & NEEDS_LOCK);
}
