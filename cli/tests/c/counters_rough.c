/* Counters where sequences cannot work as usual: one instruction at a time, in
 * the child of a vfork (argument "vfork"; wrapped by the preload library), and
 * where a filter that came later refuses membarrier. */
#include "deny.h"
#include "step.h"
#include <allotment.h>
#include <pthread.h>

static allotment_counter_event *events;
static allotment_counter_level *level;
static allotment_counter_quota *quota;

static void step_by_step(void)
{
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
            _exit(SKIPPED);
        raise(SIGSTOP);
        for (int at = 0; at < 20; at++) {
            allotment_counter_event_add(events, 3);
            allotment_counter_level_add(level, at % 4 == 3 ? -1 : 2);
            CHECK(allotment_counter_quota_try_add(quota, 1) == (at < 10));
        }
        CHECK(allotment_counter_event_sum(events) == 60);
        CHECK(allotment_counter_level_exact(level) == 25);
        CHECK(allotment_counter_quota_used(quota) == 10);
        CHECK(allotment_counter_quota_sub(quota, 10) == 1);
        _exit(0);
    }
    int status;
    long steps = step_through(child, &status);
    CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == SKIPPED), "status %#x", status);
    printf("%ld steps\n", steps);
}

enum { THREADS = 3, ROUNDS = 300000, VFORKS = 150, IN_CHILD = 20000 };
static int stop;

static void *count(void *had)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        allotment_counter_event_add(events, 1);
        allotment_counter_level_add(level, 1);
        ++*(uint64_t *)had;
    }
    return NULL;
}

/* A child of vfork has this thread's rseq area but no registration: in a sequence
 * it would not be aborted. (Without the wrapper this fails within a few rounds.) */
static void vforks(void)
{
    pthread_t threads[THREADS];
    uint64_t had[THREADS] = {0}, before = allotment_counter_event_sum(events);
    int64_t level_before = allotment_counter_level_exact(level);
    for (int at = 0; at < THREADS; at++)
        CHECK(!pthread_create(&threads[at], NULL, count, &had[at]));
    for (int at = 0; at < VFORKS; at++) {
        pid_t child = vfork();
        if (child == 0) {
            for (int round = 0; round < IN_CHILD; round++) {
                allotment_counter_event_add(events, 1);
                allotment_counter_level_add(level, 1);
            }
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    uint64_t counted = (uint64_t)VFORKS * IN_CHILD;
    for (int at = 0; at < THREADS; at++) {
        CHECK(!pthread_join(threads[at], NULL));
        counted += had[at];
    }
    int64_t missing = (int64_t)(counted - (allotment_counter_event_sum(events) - before));
    CHECK(missing == 0, "%ld of %lu", (long)missing, (unsigned long)counted);
    CHECK(allotment_counter_level_exact(level) - level_before == (int64_t)counted);
}

static void *use(void *had)
{
    for (int round = 0; round < ROUNDS; round++)
        *(uint64_t *)had += (uint64_t)allotment_counter_quota_try_add(quota, 1);
    return NULL;
}

/* Without a fence the limit still holds; what is in stocks may be refused. */
static void without_fence(void)
{
    const int number = SYS_membarrier;
    uint64_t had[THREADS] = {0}, all = 0;
    pthread_t threads[THREADS];
    allotment_counter_quota_free(quota);
    quota = allotment_counter_quota_new(5000, 100);
    /* Some in a stock, while everything works. */
    CHECK(allotment_counter_quota_try_add(quota, 1));
    if (!deny(&number, 1, SECCOMP_RET_ERRNO | EPERM)) {
        printf("skipped: no filters here\n");
        return;
    }
    for (int at = 0; at < THREADS; at++)
        CHECK(!pthread_create(&threads[at], NULL, use, &had[at]));
    for (int at = 0; at < THREADS; at++) {
        CHECK(!pthread_join(threads[at], NULL));
        all += had[at];
    }
    all += 1;
    CHECK(all <= 5000, "%lu", (unsigned long)all);
    CHECK(all + 200 * (uint64_t)allotment_counter_indices() >= 5000, "%lu", (unsigned long)all);
    CHECK(allotment_counter_quota_used(quota) == all, "%lu", (unsigned long)all);
    /* And counting goes on. */
    uint64_t before = allotment_counter_event_sum(events);
    allotment_counter_event_add(events, 7);
    CHECK(allotment_counter_event_sum(events) == before + 7);
}

int main(int argc, char **argv)
{
    events = allotment_counter_event_new();
    level = allotment_counter_level_new(5);
    quota = allotment_counter_quota_new(10, 2);
    CHECK(events && level && quota);
    step_by_step();
    if (argc > 1 && !strcmp(argv[1], "vfork"))
        vforks();
    without_fence();
    return 0;
}
