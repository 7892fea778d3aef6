/* Draining from C and C++: include/allotment.h. "expect": this heap is malloc's. */
#include "api.h"

enum { OBJECTS = 512, ROUNDS = 400 };
static int stop;

/* Allocates, checks and frees until told to stop. */
static void *work(void *seed)
{
    unsigned char *objects[OBJECTS] = {NULL};
    unsigned random = *(unsigned *)seed;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        random = random * 1664525u + 1013904223u;
        unsigned at = (random >> 8) % OBJECTS, size = 16 + at;
        if (objects[at]) {
            for (unsigned i = 0; i < size; i++)
                CHECK(objects[at][i] == (unsigned char)at);
            free(objects[at]);
            objects[at] = NULL;
        } else {
            objects[at] = (unsigned char *)malloc(size);
            CHECK(objects[at]);
            memset(objects[at], (int)at, size);
        }
        if ((random >> 16) % 4096 == 0)
            allotment_park();
    }
    for (unsigned at = 0; at < OBJECTS; at++)
        free(objects[at]);
    return NULL;
}

int main(int count, char **words)
{
    int ours = count > 1 && !strcmp(words[1], "expect");
    allotment_drained drained;
    errno = 0;
    CHECK(allotment_drain(-1, 3, &drained) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(allotment_drain(-2, 0, &drained) == -1 && errno == EINVAL);
    CHECK(allotment_drain(100000, ALLOTMENT_DRAIN_AUTO, NULL) == 0);

    unsigned seeds[] = {1, 2, 3};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, work, &seeds[i]) == 0);
    uint64_t reached = 0, objects = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int done = i % 4 == 3 ? allotment_drain_idle(&drained) : allotment_drain(i % 8 == 2 ? 0 : -1, (unsigned)i % 4, &drained);
        CHECK(done == 0 || (done == -1 && errno == EAGAIN && drained.unreached > 0));
        CHECK((drained.objects > 0) <= (drained.reached > 0) && drained.bytes >= drained.objects * 16);
        reached += drained.reached;
        objects += drained.objects;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(ours == (reached > 0) && ours == (objects > 0));
    if (ours)
        free(malloc(100));
    CHECK(allotment_drain(-1, ALLOTMENT_DRAIN_EXPEDITED, &drained) == 0);
    CHECK(allotment_drain(-1, ALLOTMENT_DRAIN_EXPEDITED, &drained) == 0);
    CHECK(allotment_drain(-1, ALLOTMENT_DRAIN_EXPEDITED, &drained) == 0 && drained.objects == 0);
    return 0;
}
