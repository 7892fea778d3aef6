// about: PR_SET_TSC lets the processor's counter fault, as a sandbox that hides time does; slow paths read it
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(void)
{
    free(malloc(8));
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0))
        return 1;
    for (int round = 0; round < 20; round++) {
        void *block[2000];
        for (int at = 0; at < 2000; at++) {
            size_t size = 1 + at * 50;
            block[at] = malloc(size);
            memset(block[at], at, size < 100 ? size : 100);
        }
        for (int at = 0; at < 2000; at++)
            free(realloc(block[at], 1 + at * 70));
        malloc_trim(0);
    }
    if (write(1, "ok\n", 3) != 3)
        return 2;
    _exit(0); /* the C library's own timing at exit is not ours to test */
}
