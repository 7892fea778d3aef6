/* Uses every function of allotment.h; built by C11 and C++17 with all warnings. */
#include "api.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>

enum { THREADS = 4, ROUNDS = 1000000 };

static allotment_counter_event *events;
static allotment_counter_level *level;
static allotment_counter_quota *quota;
static long signals;

static void on_signal(int number)
{
    (void)number;
    allotment_counter_event_add(events, 1);
    allotment_counter_level_add(level, 1);
    /* Two threads may be in here. */
    (void)__atomic_fetch_add(&signals, 1, __ATOMIC_SEQ_CST);
}

static void *work(void *argument)
{
    int round;
    long had = 0;
    (void)argument;
    for (round = 0; round < ROUNDS; round++) {
        allotment_counter_event_add(events, 2);
        allotment_counter_level_add(level, round % 3 == 2 ? -1 : 1);
        if (round % 2 == 0)
            had += allotment_counter_quota_try_add(quota, 1);
        else if (had > 0)
            had -= allotment_counter_quota_sub(quota, 1);
    }
    while (had > 0)
        had -= allotment_counter_quota_sub(quota, 1);
    return NULL;
}

static void values(void)
{
    allotment_counter_level *counter = allotment_counter_level_new(10);
    int64_t far;
    CHECK(counter != NULL);
    CHECK(allotment_counter_level_threshold(counter) == 10);
    allotment_counter_level_add(counter, 7);
    allotment_counter_level_add(counter, -3);
    CHECK(allotment_counter_level_exact(counter) == 4);
    far = (int64_t)allotment_counter_level_error_bound(counter);
    CHECK(far >= 10 && far % 10 == 0);
    CHECK(allotment_counter_level_compare(counter, 4) == 0);
    CHECK(allotment_counter_level_compare(counter, 4 + 2 * far) == -1);
    CHECK(allotment_counter_level_compare(counter, 4 - 2 * far) == 1);
    CHECK(allotment_counter_level_compare_exact(counter, 5) == -1);
    CHECK(allotment_counter_level_compare_exact(counter, 4) == 0);
    CHECK(allotment_counter_level_compare_exact(counter, 3) == 1);
    CHECK(allotment_counter_level_fold(counter) == 1);
    CHECK(allotment_counter_level_fold(counter) == 0);
    CHECK(allotment_counter_level_approximate(counter) == 4);
    allotment_counter_level_add(counter, INT64_C(1) << 40);
    CHECK(allotment_counter_level_approximate(counter) == 4 + (INT64_C(1) << 40));
    CHECK(allotment_counter_level_node(counter, 0) != 0);
    allotment_counter_level_set_threshold(counter, 1000);
    CHECK(allotment_counter_level_threshold(counter) == 125);
    allotment_counter_level_free(counter);
    allotment_counter_level_free(NULL);
    allotment_counter_event_free(NULL);
    allotment_counter_quota_free(NULL);
}

/* In a forked child: what the parent had, and counters of its own from there. */
static void forked(uint64_t limit)
{
    uint64_t before = allotment_counter_event_sum(events);
    int64_t value = allotment_counter_level_exact(level);
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(allotment_counter_event_sum(events) == before);
        CHECK(allotment_counter_level_exact(level) == value);
        allotment_counter_event_add(events, 5);
        allotment_counter_level_add(level, -5);
        CHECK(allotment_counter_event_sum(events) == before + 5);
        CHECK(allotment_counter_level_exact(level) == value - 5);
        CHECK(allotment_counter_quota_try_add(quota, limit));
        CHECK(!allotment_counter_quota_try_add(quota, 1));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(allotment_counter_event_sum(events) == before);
    CHECK(allotment_counter_quota_used(quota) == 0);
}

/* Forks while others count: the child's numbers stay within what it says. */
static void *fork_often(void *argument)
{
    int round;
    (void)argument;
    for (round = 0; round < 30; round++) {
        pid_t child = fork();
        int status;
        if (child == 0) {
            uint64_t sum = allotment_counter_event_sum(events);
            int64_t value = allotment_counter_level_exact(level);
            allotment_counter_event_add(events, 1);
            allotment_counter_level_add(level, 1);
            CHECK(allotment_counter_event_sum(events) == sum + 1);
            CHECK(allotment_counter_level_exact(level) == value + 1);
            CHECK(allotment_counter_quota_used(quota) <= allotment_counter_quota_limit(quota));
            (void)allotment_counter_level_fold(level);
            CHECK(allotment_counter_level_exact(level) == value + 1);
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    const uint64_t limit = 100;
    pthread_t threads[THREADS], forker;
    struct itimerval timer;
    struct sigaction action;
    int64_t expected;
    int at;

    CHECK(strcmp(allotment_counter_mode(), "closed") == 0 && allotment_counter_indices() == 0);
    events = allotment_counter_event_new();
    level = allotment_counter_level_new(0);
    quota = allotment_counter_quota_new(limit, 0);
    CHECK(events != NULL && level != NULL && quota != NULL);
    CHECK(count < 2 || strcmp(allotment_counter_mode(), arguments[1]) == 0);
    values();

    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    memset(&timer, 0, sizeof timer);
    timer.it_interval.tv_usec = timer.it_value.tv_usec = 200;
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    for (at = 0; at < THREADS; at++)
        CHECK(pthread_create(&threads[at], NULL, work, NULL) == 0);
    CHECK(pthread_create(&forker, NULL, fork_often, NULL) == 0);
    for (at = 0; at < THREADS; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    CHECK(pthread_join(forker, NULL) == 0);
    memset(&timer, 0, sizeof timer);
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);

    CHECK(allotment_counter_event_sum(events) == (uint64_t)THREADS * ROUNDS * 2 + (uint64_t)signals);
    /* One up of every three rounds, and what the last two leave. */
    expected = (int64_t)THREADS * (ROUNDS / 3 + ROUNDS % 3) + signals;
    CHECK(allotment_counter_level_exact(level) == expected);
    CHECK(llabs(allotment_counter_level_approximate(level) - expected)
          <= (int64_t)allotment_counter_level_error_bound(level));
    CHECK(allotment_counter_quota_used(quota) == 0);
    CHECK(allotment_counter_quota_charged(quota) <= limit);
    CHECK(allotment_counter_indices() >= 1);
    forked(limit);

    CHECK(allotment_counter_quota_try_add(quota, limit) == 1);
    CHECK(allotment_counter_quota_try_add(quota, 1) == 0);
    allotment_counter_quota_set_limit(quota, limit + 1);
    CHECK(allotment_counter_quota_limit(quota) == limit + 1);
    CHECK(allotment_counter_quota_try_add(quota, 1) == 1);
    CHECK(allotment_counter_quota_sub(quota, limit + 2) == 0);
    CHECK(allotment_counter_quota_sub(quota, limit + 1) == 1);

    /* Out of memory is an answer. */
    {
        struct rlimit none = {0, 0};
        static allotment_counter_level *many[4096];
        int made = 0;
        CHECK(setrlimit(RLIMIT_AS, &none) == 0);
        errno = 0;
        while (made < 4096 && (many[made] = allotment_counter_level_new(1)) != NULL)
            made++;
        CHECK(made < 4096 && errno == ENOMEM);
        while (made > 0)
            allotment_counter_level_free(many[--made]);
        many[0] = allotment_counter_level_new(1);
        CHECK(many[0] != NULL && allotment_counter_level_exact(many[0]) == 0);
        allotment_counter_level_free(many[0]);
    }
    allotment_counter_event_free(events);
    allotment_counter_level_free(level);
    allotment_counter_quota_free(quota);
    printf("%s\n", allotment_counter_mode());
    return 0;
}
