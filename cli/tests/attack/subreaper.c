// about: a subreaper finds no child that it did not start: the task that frees a dead process's heap was inherited by it
// conf: reap_bytes=16M,huge_bytes=0
// alone
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1))
        return 1;
    for (int round = 0; round < 8; round++) {
        pid_t child = fork();
        if (!child) {
            volatile char *much = malloc(48 << 20);
            for (size_t at = 0; at < 48 << 20; at += 4096)
                much[at] = 1;
            exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            return 2;
    }
    usleep(200000);
    int strangers = 0;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        strangers++;
    printf("%d strangers\n", strangers);
    return 0;
}
