// about: in the fallback a second thread's first allocation sent membarrier, behind a filter that a raw system call had installed and that kills for it
// args: kill
// args: refuse
#include "../c/check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void *work(void *held)
{
    churn(held, 20000);
    return NULL;
}

int main(int argc, char **argv)
{
    // (Where there are sequences, a set that follows its thread to another CPU asks for a fence: see README's limits.)
    cpu_set_t allowed;
    CHECK(!sched_getaffinity(0, sizeof allowed, &allowed));
    hop(0, &allowed, &(Random){1});
    static Held held[3];
    churn(&held[0], 1000);
    unsigned answer = strcmp(argv[1], "kill") ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_KILL_PROCESS;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    CHECK(!syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    CHECK(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter));
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, &held[i + 1]));
    churn(&held[0], 20000);
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_join(threads[i], NULL));
    for (int i = 0; i < 3; i++)
        churn_end(&held[i]);
    puts("ok");
}
