// about: a thread of the smallest stack there is calls everything
// known: malloc_trim overflows the stack
#include "../c/check.h"
#include <limits.h>
#include <malloc.h>
#include <pthread.h>

static void *works(void *seed)
{
    Random random = {(uintptr_t)seed};
    void *block[100];
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < 100; i++)
            block[i] = malloc(1 + next(&random) % (1 << (1 + next(&random) % 20)));
        for (int i = 0; i < 100; i++)
            block[i] = realloc(block[i], 1 + next(&random) % 100000);
        for (int i = 0; i < 100; i++)
            free(block[i]);
        free(memalign(65536, 100000));
        free(calloc(1, 200000));
        free(malloc(40 << 20));
        malloc_usable_size(NULL);
        mallinfo2();
        if (round % 20 == 0)
            malloc_trim(0);
    }
    return NULL;
}

int main(void)
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    CHECK(!pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN));
    for (uintptr_t i = 0; i < 8; i++) {
        pthread_t thread;
        CHECK(!pthread_create(&thread, &small, works, (void *)i));
        pthread_join(thread, NULL);
    }
    puts("ok");
}
