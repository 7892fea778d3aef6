// about: two threads with areas of random sizes cut each other's address space into pieces that did not merge: ten times the time, 25 GB of addresses
#include "../c/check.h"

#include <pthread.h>

static void *work(void *seed)
{
    uint64_t random = (uint64_t)(uintptr_t)seed;
    for (int at = 0; at < 100000; at++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        char *volatile block = malloc((1 + (random >> 33) % 100) << 16);
        block[0] = 1;
        free(block);
    }
    return NULL;
}

int main(void)
{
    pthread_t thread[2];
    for (uintptr_t at = 0; at < 2; at++)
        pthread_create(&thread[at], NULL, work, (void *)(at + 1));
    for (int at = 0; at < 2; at++)
        pthread_join(thread[at], NULL);
    puts(memory_of(0).mapped < (size_t)2 << 30 ? "some" : "all");
    return 0;
}
