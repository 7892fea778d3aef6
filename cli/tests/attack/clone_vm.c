// about: a child by clone(CLONE_VM) allocates beside the parent's threads: it shares their rseq area, but has none registered
// args: vfork
#include "../c/check.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static atomic_bool stop;
static Held of_child, of_parent;

static void *load(void *held)
{
    while (!stop)
        churn(held, 1000);
    return NULL;
}

static int child(void *held)
{
    churn(held, 30000);
    syscall(SYS_exit, 0);
    return 1;
}

int main(int argc, char **argv)
{
    /* The parent waits in the call, or goes on in its own thread. */
    int flags = !strcmp(argv[1], "vfork") ? CLONE_VFORK : 0;
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&thread[i], NULL, load, calloc(1, sizeof(Held))));
    char *stack = malloc(1 << 18);
    for (int i = 0; i < 12; i++) {
        pid_t made = clone(child, stack + (1 << 18), CLONE_VM | flags | SIGCHLD, &of_child);
        CHECK(made > 0);
        churn(&of_parent, 10000);
        int status;
        CHECK(waitpid(made, &status, 0) == made && status == 0, "status %#x", status);
    }
    stop = true;
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    churn_end(&of_child);
    churn_end(&of_parent);
    puts("ok");
}
