/* Per-CPU memory from C and C++: include/allotment.h. */
#include "api.h"

enum { THREADS = 4, ROUNDS = 20000 };

static void *count(void *memory)
{
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t *word = (uint64_t *)allotment_percpu_this_cpu((allotment_percpu *)memory);
        __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
        allotment_percpu *other = allotment_percpu_alloc(1 + (size_t)i % 300, 4);
        CHECK(other);
        unsigned char *bytes = (unsigned char *)allotment_percpu_this_cpu(other);
        for (int at = 0; at < 1 + i % 300; at++)
            CHECK(bytes[at] == 0);
        memset(bytes, 0xff, 1 + (size_t)i % 300);
        CHECK(allotment_percpu_free(other) == 0);
    }
    return NULL;
}

static void *take(void *nothing)
{
    (void)nothing;
    return allotment_percpu_alloc(8, 8);
}

int main(void)
{
    errno = 0;
    CHECK(!allotment_percpu_alloc(0, 8) && errno == EINVAL);
    errno = 0;
    CHECK(!allotment_percpu_alloc(8, 12) && errno == EINVAL);
    errno = 0;
    CHECK(!allotment_percpu_alloc((size_t)1 << 20, 8) && errno == EINVAL);

    // The first of all, which opens per-CPU memory, on the smallest stack that a thread can have.
    pthread_attr_t smallest;
    pthread_t threads[THREADS];
    void *first = NULL;
    CHECK(pthread_attr_init(&smallest) == 0);
    CHECK(pthread_attr_setstacksize(&smallest, (size_t)sysconf(_SC_THREAD_STACK_MIN)) == 0);
    CHECK(pthread_create(&threads[0], &smallest, take, NULL) == 0);
    CHECK(pthread_join(threads[0], &first) == 0);
    allotment_percpu *memory = (allotment_percpu *)first;
    CHECK(memory && allotment_percpu_indices() > 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, count, memory) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    uint64_t sum = 0;
    for (unsigned i = 0; i < allotment_percpu_indices_in_use(); i++)
        sum += *(uint64_t *)allotment_percpu_for_cpu(memory, i);
    CHECK(sum == (uint64_t)THREADS * ROUNDS);
    CHECK(!allotment_percpu_for_cpu(memory, allotment_percpu_indices()));

    CHECK(allotment_percpu_free(memory) == 0);
    errno = 0;
    CHECK(allotment_percpu_free(memory) == -1 && errno == EINVAL);
    CHECK(allotment_percpu_free((allotment_percpu *)&sum) == -1);
    CHECK(allotment_percpu_free(NULL) == 0);
    allotment_percpu *several[10];
    for (int at = 0; at < 10; at++)
        CHECK((several[at] = allotment_percpu_alloc(24, 8)) != NULL);
    CHECK(allotment_percpu_free_bulk(several, 10) == 0);
    CHECK(allotment_percpu_free_bulk(several, 1) == -1 && errno == EINVAL);

    allotment_percpu *reserved = allotment_percpu_alloc_reserved(100, 16);
    CHECK(reserved && allotment_percpu_free(reserved) == 0);
    allotment_percpu *populated = allotment_percpu_alloc_populated(64, 8);
    CHECK(!populated || allotment_percpu_free(populated) == 0);
    allotment_percpu_balance();

    char text[8];
    size_t all = allotment_percpu_stats(text, sizeof text);
    CHECK(all > sizeof text && strlen(text) == sizeof text - 1);
    char *whole = (char *)malloc(2 * all);
    CHECK(allotment_percpu_stats(whole, 2 * all) > 0);
    CHECK(strstr(whole, "nr_cur_alloc        :            0"));
    free(whole);
    puts("fine");
    return 0;
}
