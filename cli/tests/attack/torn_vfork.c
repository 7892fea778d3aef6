// about: a child that a raw call forked while another thread drained the caches waited for ever in vfork, all signals blocked
#include "../c/check.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void *drains(void *none)
{
    void *blocks[3000] = {NULL};
    for (Random random = {1};;) {
        void **block = &blocks[next(&random) % 3000];
        free(*block);
        *block = malloc(1 + next(&random) % 10000);
        if (next(&random) % 500 == 0)
            malloc_trim(0);
    }
    return none;
}

int main(void)
{
    pthread_t threads[2];
    for (int at = 0; at < 60; at++) {
        char *volatile block = malloc(1 << 20);
        memset(block, 1, 1 << 20);
    }
    for (int at = 0; at < 2; at++)
        CHECK(!pthread_create(&threads[at], NULL, drains, NULL));
    usleep(50000);
    for (int at = 0; at < 60; at++) {
        pid_t pid = (pid_t)(at % 2 ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : syscall(SYS_fork));
        CHECK(pid >= 0);
        if (!pid) {
            pid_t grandchild = vfork();
            if (!grandchild)
                _exit(0);
            int status;
            _exit(waitpid(grandchild, &status, 0) != grandchild || status);
        }
        int status, waited = 0;
        for (; waited < 1000 && !waitpid(pid, &status, WNOHANG); waited++)
            usleep(10000);
        if (waited == 1000)
            kill(pid, SIGKILL);
        CHECK(waited < 1000 && !status, "child %d: %s", at, waited < 1000 ? "status" : "hangs");
    }
    say("ok\n");
    _exit(0);
}
