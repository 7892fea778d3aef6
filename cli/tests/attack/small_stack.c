// about: threads of the smallest stack overflowed in malloc_trim, where caches were drained by large arrays
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 16, ROUNDS = 100, BLOCKS = 100 };

static void *work(void *seed_given)
{
    unsigned seed = (unsigned)(size_t)seed_given;
    void *block[BLOCKS];
    for (int round = 0; round < ROUNDS; round++) {
        for (int at = 0; at < BLOCKS; at++)
            block[at] = malloc(1 + rand_r(&seed) % (1 << (1 + rand_r(&seed) % 20)));
        for (int at = 0; at < BLOCKS; at++)
            block[at] = realloc(block[at], 1 + rand_r(&seed) % 100000);
        for (int at = 0; at < BLOCKS; at++)
            free(block[at]);
        free(memalign(65536, 100000));
        free(calloc(1, 200000));
        if (round % 25 == 0)
            malloc_trim(0);
    }
    return NULL;
}

int main(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, sysconf(_SC_THREAD_STACK_MIN));
    for (size_t at = 0; at < THREADS; at++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, work, (void *)(at + 1)))
            return 1;
        pthread_join(thread, NULL);
    }
    puts("ok");
    return 0;
}
