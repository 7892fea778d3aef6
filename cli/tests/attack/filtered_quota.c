// about: a program of several threads that kills itself for membarrier died when a quota of the library became tight, or at its next fork
// flags: -ldl
#include "../c/check.h"
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static atomic_bool stop;

static void *load(void *unused)
{
    while (!stop)
        free(malloc(100));
    return unused;
}

int main(void)
{
    /* (glibc has none: then only the fork is tried.) */
    void *(*make)(uint64_t, uint64_t) = dlsym(RTLD_DEFAULT, "allotment_counter_quota_new");
    int (*try_add)(void *, uint64_t) = dlsym(RTLD_DEFAULT, "allotment_counter_quota_try_add");
    void *quota = make ? make(10000, 100) : NULL;
    if (quota)
        CHECK(try_add(quota, 1) == 0 || try_add(quota, 1) == 1);
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, load, NULL));
    CHECK(!pthread_create(&thread, NULL, load, NULL));
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {4, filter};
    /* (This thread's: the other makes no such call.) */
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    for (int i = 0; quota && i < 20000; i++)
        try_add(quota, 1);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child)
            _exit(0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "status %#x", status);
    }
    stop = true;
    pthread_join(thread, NULL);
    puts("ok");
}
