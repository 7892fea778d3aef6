// about: after SECCOMP_MODE_STRICT a program of which every allocation is already there lives on under glibc
// args: 1000 64
// known: slow paths read the time stamp counter
#include "../c/check.h"
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
    long count = atol(argv[1]), size = atol(argv[2]);
    static void *block[1000];
    for (long i = 0; i < count; i++)
        block[i] = malloc(size);
    CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
    for (int round = 0; round < 20; round++) {
        for (long i = 0; i < count; i++)
            free(block[i]);
        for (long i = 0; i < count; i++)
            memset(block[i] = malloc(size), 1, size);
    }
    say("ok\n");
    syscall(SYS_exit, 0);
}
