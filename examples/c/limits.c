/* A server that takes at most so many requests at once, knows how many bytes it holds, and has a buffer for each CPU.
 *
 *   quota counter   who may come in, exactly: a CPU takes a stock of it and asks nobody while that lasts
 *   level counter   bytes held: one load tells them with a stated error
 *   per-CPU memory  a buffer that is this CPU's own
 *   pages           a request's body
 */
#include <allotment.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { WORKERS = 4, REQUESTS = 10000, ADMITTED = 2, PAGE = 4096 };

static allotment_counter_quota *admitted;
static allotment_counter_level *held;
static allotment_percpu *served;

static void *work(void *unused) {
    (void)unused;
    for (int i = 0; i < REQUESTS; i++) {
        while (!allotment_counter_quota_try_add(admitted, 1)) {}
        char *body = allotment_pages_alloc(0, -1, ALLOTMENT_PAGES_ZERO);
        if (body != NULL) {
            allotment_counter_level_add(held, PAGE);
            strcpy(body, "a request");
            /* (The thread may be moved meanwhile: the copies are told apart by atomics.) */
            __atomic_fetch_add((uint64_t *)allotment_percpu_this_cpu(served), 1, __ATOMIC_RELAXED);
            allotment_pages_free(body);
            allotment_counter_level_add(held, -PAGE);
        }
        allotment_counter_quota_sub(admitted, 1);
    }
    return NULL;
}

int main(void) {
    pthread_t workers[WORKERS];
    uint64_t sum = 0;
    admitted = allotment_counter_quota_new(ADMITTED, 0);
    held = allotment_counter_level_new(0);
    served = allotment_percpu_alloc(sizeof(uint64_t), sizeof(uint64_t));
    if (admitted == NULL || held == NULL || served == NULL) {
        perror("no counters");
        return 1;
    }
    for (int i = 0; i < WORKERS; i++)
        if (pthread_create(&workers[i], NULL, work, NULL) != 0) return 1;
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
    for (unsigned index = 0; index < allotment_percpu_indices(); index++) {
        const uint64_t *copy = allotment_percpu_for_cpu(served, index);
        if (copy != NULL) sum += *copy;
    }
    printf("served %" PRIu64 ", held %" PRId64 " bytes, admitted %" PRIu64 "\n", sum, allotment_counter_level_exact(held),
        allotment_counter_quota_used(admitted));
    return sum == (uint64_t)WORKERS * REQUESTS && allotment_counter_level_exact(held) == 0 ? 0 : 1;
}
