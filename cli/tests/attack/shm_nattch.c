// about: after wait() System V memory is not attached any more: the task that frees a dead process's heap kept it for a while
// conf: reap_bytes=16M,reap_parent=any,huge_bytes=0
// alone
#include <stdio.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    int segment = shmget(IPC_PRIVATE, 1 << 20, 0600), attached = 0;
    for (int round = 0; round < 12; round++) {
        pid_t child = fork();
        if (!child) {
            char *shared = shmat(segment, NULL, 0);
            shared[0] = 1;
            volatile char *much = malloc(64 << 20);
            for (size_t at = 0; at < 64 << 20; at += 4096)
                much[at] = 1;
            exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            return 2;
        struct shmid_ds state;
        shmctl(segment, IPC_STAT, &state);
        attached += (int)state.shm_nattch;
    }
    shmctl(segment, IPC_RMID, NULL);
    printf("%d attached\n", attached);
    return 0;
}
