/* Filters of system calls. */
#ifndef DENY_H
#define DENY_H
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

__attribute__((unused)) static int call_number(const char *name)
{
    static const struct { const char *name; int number; } calls[] = {
        {"membarrier", SYS_membarrier}, {"mmap", SYS_mmap}, {"mprotect", SYS_mprotect}, {"mremap", SYS_mremap},
        {"madvise", SYS_madvise}, {"munmap", SYS_munmap}, {"rseq", SYS_rseq}, {"getcpu", SYS_getcpu},
        {"sched_getaffinity", SYS_sched_getaffinity}, {"process_madvise", SYS_process_madvise}, {"mbind", SYS_mbind},
        {"get_mempolicy", SYS_get_mempolicy}, {"prctl", SYS_prctl}, {"openat", SYS_openat},
        {"clock_gettime", SYS_clock_gettime}, {"getpid", SYS_getpid}, {"prctl", SYS_prctl}, {"sysinfo", SYS_sysinfo},
        {"getdents64", SYS_getdents64}, {"clone", SYS_clone}, {"clone3", SYS_clone3},
    };
    for (size_t at = 0; at < sizeof calls / sizeof calls[0]; at++)
        if (!strcmp(name, calls[at].name))
            return calls[at].number;
    return *name >= '0' && *name <= '9' ? atoi(name) : -1;
}

/* Numbers listed get `answer`, all others pass; or, if count < 0, the -count
 * listed pass and all others get it. False where the system refuses filters. */
__attribute__((unused)) static bool deny(const int *numbers, int count, unsigned answer)
{
    struct sock_filter code[80];
    int length = 0, listed = count < 0 ? -count : count;
    CHECK(listed <= 64);
    code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int at = 0; at < listed; at++)
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)numbers[at], (unsigned char)(listed - at), 0);
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, count < 0 ? answer : SECCOMP_RET_ALLOW);
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, count < 0 ? SECCOMP_RET_ALLOW : answer);
    struct sock_fprog program = {(unsigned short)length, code};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}
#endif
