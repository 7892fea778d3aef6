// about: the only thread of its own leaves by the exit system call, as clone's child does when its function returns; the keeper kept the process
// args: fork 1 200
// args: fork 200 1
// args: clone 1 200
// args: namespace 1 200
#include "../c/check.h"
#include <sys/syscall.h>
#include <sys/wait.h>

static void work(int blocks)
{
    for (int i = 0; i < blocks; i++)
        memset(malloc(100000), 1, 100000);
}

static int child(void *blocks)
{
    work(*(int *)blocks);
    usleep(200000);
    return 7;
}

int main(int argc, char **argv)
{
    int before = atoi(argv[2]), after = atoi(argv[3]);
    int flags = SIGCHLD | (!strcmp(argv[1], "namespace") ? CLONE_NEWPID : 0);
    work(before);
    usleep(200000);
    pid_t made;
    if (!strcmp(argv[1], "fork")) {
        made = fork();
        if (made == 0)
            syscall(SYS_exit, child(&after));
    } else {
        char *stack = malloc(1 << 20);
        made = clone(child, stack + (1 << 20), flags, &after);
        if (made < 0 && errno == EPERM) {
            puts("skipped: no namespaces for us");
            return SKIPPED;
        }
    }
    CHECK(made > 0);
    int status;
    CHECK(waitpid(made, &status, 0) == made);
    printf("child status %#x\n", status);
    fflush(stdout);
    /* And this one does likewise. */
    syscall(SYS_exit, 3);
}
