// about: the status of a process is that of its last thread of its own, which was not the first, with ours still beside it
#include "../c/check.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void *last(void *none)
{
    for (int i = 0; i < 1000; i++)
        memset(malloc(65536), i, 65536);
    usleep(1500000);
    syscall(SYS_exit, 0);
    return none;
}

int main(void)
{
    int status;
    pid_t child = fork();
    if (!child) {
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, last, NULL));
        syscall(SYS_exit, 5);
    }
    CHECK(waitpid(child, &status, 0) == child);
    printf("status %#x\n", status);
}
