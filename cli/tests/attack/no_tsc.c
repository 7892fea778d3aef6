// about: the time stamp counter is forbidden, as in a sandbox that hides time
// known: slow paths read the counter
#include "../c/check.h"
#include <malloc.h>
#include <sys/prctl.h>

int main(void)
{
    free(malloc(8));
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0)) {
        puts("skipped: no PR_SET_TSC");
        return SKIPPED;
    }
    for (int i = 0; i < 2000; i++) {
        void *block = malloc(1 + i * 30);
        if (i % 3)
            free(block);
    }
    malloc_trim(0);
    say("ok\n");
    _exit(0);
}
