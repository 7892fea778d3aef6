// about: a program counts its own allocations: it defines malloc and free and hands on to the next ones, or to the C library's by their other names
// flags: -ldl
#include "../c/check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

extern void *__libc_malloc(size_t);
extern void __libc_free(void *);
static atomic_long made, gone;

void *malloc(size_t size)
{
    static void *(*_Atomic next)(size_t);
    if (!next && size == 12345)
        next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    void *block = next ? next(size) : __libc_malloc(size);
    made += block != NULL;
    return block;
}

void free(void *block)
{
    gone += block != NULL;
    if ((uintptr_t)block >> 5 & 1) {
        static void (*_Atomic next)(void *);
        if (!next)
            next = (void (*)(void *))dlsym(RTLD_NEXT, "free");
        next(block);
    } else
        __libc_free(block);
}

static void *works(void *none)
{
    static _Thread_local Held held;
    churn(&held, 3000);
    churn_end(&held);
    return none;
}

int main(void)
{
    free(malloc(12345));
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&thread[i], NULL, works, NULL));
    works(NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    pid_t child = fork();
    if (!child) {
        works(NULL);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("status %#x, %s\n", status, made > 5000 && gone > 5000 ? "counted" : "not counted");
}
