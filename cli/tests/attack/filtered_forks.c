// about: children of a program of 50 MiB that forbids itself getpid were killed: what waits for our threads, of which none is left, asked for it
#include "../c/check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

int main(void)
{
    char *much = malloc(50 << 20);
    memset(much, 1, 50 << 20);
    /* (Time for a thread of ours.) */
    usleep(200000);
    free(malloc(100000));
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {4, filter};
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            for (int j = 0; j < 200; j++) {
                char *some = malloc(j * 3000 + 1);
                memset(some, 1, j * 3000 + 1);
                if (j & 1)
                    free(some);
            }
            free(much);
            free(realloc(calloc(1, 40 << 20), 80 << 20));
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "status %#x", status);
    }
    puts("ok");
}
