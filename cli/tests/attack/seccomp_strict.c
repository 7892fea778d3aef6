// about: in SECCOMP_MODE_STRICT the processor's counter faults, slow paths read it; and without sequences a first sheaf on another CPU was a system call
// args: moves
// args: stays
#define _GNU_SOURCE
#include <linux/seccomp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCKS = 3000, SIZES = 5 };

static void *block[BLOCKS];

/* To the next CPU that we may run on, if there is one. */
static void move(void)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all))
        return;
    for (int step = 1, here = sched_getcpu(); step < CPU_SETSIZE; step++) {
        int cpu = (here + step) % CPU_SETSIZE;
        if (CPU_ISSET(cpu, &all)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            return;
        }
    }
}

int main(int argc, char **argv)
{
    static const size_t size[SIZES] = {8, 24, 12, 16, 20};
    /* As far as the program will go: what it frees serves it later. */
    for (int at = 0; at < BLOCKS; at++)
        block[at] = malloc(size[at % SIZES]);
    for (int at = 0; at < BLOCKS; at++)
        free(block[at]);
    if (!strcmp(argv[1], "moves"))
        move();
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
        return 1;
    for (int round = 0; round < 20; round++) {
        for (int at = 0; at < BLOCKS; at++) {
            block[at] = malloc(size[(at + round) % SIZES]);
            if (!block[at])
                syscall(SYS_exit, 2);
            memset(block[at], at, size[(at + round) % SIZES]);
        }
        for (int at = 0; at < BLOCKS; at++)
            free(block[at]);
    }
    if (write(1, "ok\n", 3) != 3)
        syscall(SYS_exit, 3);
    syscall(SYS_exit, 0); /* exit_group is not among the four calls */
}
