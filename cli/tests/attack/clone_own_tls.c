// about: a thread by clone(CLONE_SETTLS) with storage of its own, whose rseq area is all zero and nobody's: it passed for one on CPU 0, and blocks were handed out twice
#include "../c/check.h"
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static atomic_bool stop;
static Held of_child[2];

static void *load(void *held)
{
    while (!stop)
        churn(held, 1000);
    return NULL;
}

static int thread(void *held)
{
    churn(held, 4000);
    syscall(SYS_exit, 0);
    return 1;
}

int main(void)
{
    void *(*storage)(void *) = (void *(*)(void *))dlsym(RTLD_DEFAULT, "_dl_allocate_tls");
    pthread_t threads[3];
#ifndef __x86_64__
    storage = NULL; /* (What a thread's storage begins with is the processor's.) */
#endif
    if (!storage) {
        puts("ok");
        return 0;
    }
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&threads[i], NULL, load, calloc(1, sizeof(Held))));
    static int alive[2];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 2; i++) {
            char *stack = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            char *block = storage(NULL);
            CHECK(stack != MAP_FAILED && block);
#ifdef __x86_64__
            /* Itself, twice; several threads; the stack protector's word and the pointer guard. */
            char **words = (char **)block, *mine;
            words[0] = words[2] = block;
            words[3] = (char *)1;
            __asm__("mov %%fs:0x28, %0" : "=r"(mine));
            words[5] = mine;
            __asm__("mov %%fs:0x30, %0" : "=r"(mine));
            words[6] = mine;
#endif
            alive[i] = 1;
            CHECK(clone(thread, stack + (1 << 18) - 512,
                        CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID | CLONE_SETTLS,
                        &of_child[i], NULL, block, &alive[i]) > 0);
        }
        for (int i = 0; i < 2; i++)
            while (__atomic_load_n(&alive[i], __ATOMIC_ACQUIRE))
                syscall(SYS_futex, &alive[i], FUTEX_WAIT, 1, NULL, NULL, 0);
    }
    stop = true;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        churn_end(&of_child[i]);
    puts("ok");
}
