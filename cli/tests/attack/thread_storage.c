// about: what threads leave in their storage is freed by its destructors, which allocate, put new things there and free again
#include "../c/check.h"
#include <pthread.h>

static pthread_key_t key[8];
static atomic_int destroyed;

static void destroys(void *block)
{
    static _Thread_local int round;
    drop(block);
    destroyed++;
    Random random = {(uintptr_t)block};
    if (round++ < 20)
        pthread_setspecific(key[round % 8], grab(&random, some_size(&random)));
}

static void *works(void *seed)
{
    Random random = {(uintptr_t)seed};
    for (int i = 0; i < 8; i++)
        pthread_setspecific(key[i], grab(&random, some_size(&random)));
    return NULL;
}

int main(void)
{
    for (int i = 0; i < 8; i++)
        CHECK(!pthread_key_create(&key[i], destroys));
    for (uintptr_t round = 0; round < 150; round++) {
        pthread_t thread[4];
        for (uintptr_t i = 0; i < 4; i++)
            CHECK(!pthread_create(&thread[i], NULL, works, (void *)(round * 4 + i)));
        for (int i = 0; i < 4; i++)
            pthread_join(thread[i], NULL);
    }
    printf("%d\n", (int)destroyed);
}
