// about: a thread by clone(CLONE_THREAD) without CLONE_SETTLS allocates on its creator's storage, whose rseq area is not its own: blocks were handed out twice
// args: 0
// args: 1
#include "../c/check.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>

static atomic_bool stop;
static Held of_child;

static void *load(void *held)
{
    while (!stop)
        churn(held, 1000);
    return NULL;
}

static int thread(void *held)
{
    churn(held, 2000);
    syscall(SYS_exit, 0);
    return 1;
}

int main(int argc, char **argv)
{
    /* Its creator waits for it: by a futex, or in the call. */
    int flags = atoi(argv[1]) ? CLONE_VFORK : 0;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&threads[i], NULL, load, calloc(1, sizeof(Held))));
    char *stack = malloc(1 << 18);
    static int alive;
    for (int i = 0; i < 50; i++) {
        alive = 1;
        int made = clone(thread, stack + (1 << 18),
                         CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID | flags,
                         &of_child, NULL, NULL, &alive);
        CHECK(made > 0);
        while (__atomic_load_n(&alive, __ATOMIC_ACQUIRE))
            syscall(SYS_futex, &alive, FUTEX_WAIT, 1, NULL, NULL, 0);
    }
    stop = true;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    churn_end(&of_child);
    puts("ok");
}
