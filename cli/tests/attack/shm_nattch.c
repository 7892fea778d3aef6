// about: System V memory that a process had attached is free when wait has returned it, whatever else it leaves behind
// args: 20
// args: 300
// known: the reaper keeps the memory attached after wait
#include "../c/check.h"
#include <sys/shm.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
    size_t size = (size_t)atol(argv[1]) << 20;
    int id = shmget(IPC_PRIVATE, 1 << 20, 0600);
    CHECK(id >= 0);
    for (int round = 0; round < 2; round++) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            *(char *)shmat(id, NULL, 0) = 1;
            memset(malloc(size), 1, size);
            exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && !status);
        struct shmid_ds state;
        shmctl(id, IPC_STAT, &state);
        printf("attached: %ld\n", (long)state.shm_nattch);
    }
    shmctl(id, IPC_RMID, NULL);
}
