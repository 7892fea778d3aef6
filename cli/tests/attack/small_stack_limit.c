// about: a thread of the smallest stack meets the heap's limit
// conf: hard_limit=16M
// own-errors
#include "../c/check.h"
#include <limits.h>
#include <pthread.h>

static void *works(void *none)
{
    static void *block[20000];
    int count = 0;
    while (count < 20000 && (block[count] = malloc(200 + count % 3000)))
        count++;
    for (int i = 0; i < count; i++)
        free(block[i]);
    for (int i = 0; i < 50; i++)
        free(malloc(3000000));
    return none;
}

int main(void)
{
    free(malloc(100));
    pthread_attr_t small;
    pthread_attr_init(&small);
    CHECK(!pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN));
    pthread_t thread;
    CHECK(!pthread_create(&thread, &small, works, NULL));
    pthread_join(thread, NULL);
    puts("ok");
}
