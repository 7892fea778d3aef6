/* Memory that ends and systems that refuse: malloc says NULL and ENOMEM, loses
 * nothing, and works again once there is room. The cases `kills`, `kills_threads`
 * are stricter than glibc's malloc can bear: it is given more with
 * LIMITS_EXTRA=1. The others pass on plain glibc. */
#include "deny.h"
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)
/* Where nothing else ends it. */
#define CAP (320 * MIB)

/* Takes blocks of one size until there are no more; a list through their second
 * words would break the patterns, so it is kept in an area of its own. */
static void **list;
static size_t room, count;

static void list_begin(size_t entries)
{
    room = entries;
    list = mmap(NULL, room * sizeof *list, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(list != MAP_FAILED);
    count = 0;
}

static void list_end(void) { munmap(list, room * sizeof *list); }

static size_t take_all(size_t size, bool must_end)
{
    size_t bytes = 0, first = count;
    while (count < room) {
        errno = 0;
        void *block = count % 5 == 4 ? calloc(1, size) : malloc(size);
        if (!block) {
            CHECK(errno == ENOMEM);
            break;
        }
        mark(block, size);
        list[count++] = block;
        bytes += size;
        if (bytes > CAP) {
            CHECK(!must_end, "%zu bytes and no end", bytes);
            break;
        }
    }
    /* Refused again, and in every other way to ask, with what there is untouched. */
    if (must_end) {
        void *block = &block;
        errno = 0;
        CHECK(calloc(1, 64 * MIB) == NULL && errno == ENOMEM);
        CHECK(posix_memalign(&block, 4096, 64 * MIB) == ENOMEM && block == &block);
        if (count > first) {
            errno = 0;
            CHECK(realloc(list[first], CAP * 2) == NULL && errno == ENOMEM);
            CHECK(verify(list[first]) == size);
        }
    }
    return bytes;
}

static void give_back(size_t keep)
{
    while (count > keep)
        drop(list[--count]);
}

/* `least` is what each kind of block must be able to fill, whatever came before it. */
static void exhaust(size_t least, size_t most, bool must_end)
{
    static const size_t sizes[] = {64, 4 * MIB, 400, 100000, 5000, 20000, 33000, 64, MIB, 3000, 4 * MIB};
    list_begin(most / 64 + 1);
    for (size_t at = 0; at < sizeof sizes / sizeof sizes[0]; at++) {
        size_t all = take_all(sizes[at], must_end);
        CHECK(all >= least, "%zu bytes in blocks of %zu, wanted %zu", all, sizes[at], least);
        size_t half = count / 2;
        for (size_t which = 0; which < count; which++)
            CHECK(verify(list[which]) == sizes[at]);
        give_back(half);
        size_t again = take_all(sizes[at], must_end);
        CHECK(again >= all / 4, "%zu of %zu bytes again", again, all);
        give_back(0);
    }
    list_end();
    Held held = {.random.state = 3};
    churn(&held, 5000);
    churn_end(&held);
}

/* Started under a limit, by `prlimit --as=`. */
static void limited(void)
{
    struct rlimit limit;
    CHECK(!getrlimit(RLIMIT_AS, &limit));
    CHECK(limit.rlim_cur != RLIM_INFINITY, "run it under prlimit --as=");
    exhaust(limit.rlim_cur / 8, limit.rlim_cur, true);
}

/* The limit comes when the heap has long been working, and holds from then on. */
static void late_limit(void)
{
    Held held = {.random.state = 5};
    churn(&held, 20000);
    list_begin(1 << 20);
    struct rlimit limit = {memory_of(0).mapped + 48 * MIB, RLIM_INFINITY};
    CHECK(!setrlimit(RLIMIT_AS, &limit));
    /* (A sampled object is a page.) */
    size_t small = take_all(300, true), least = getenv("SAMPLED") ? 16 * MIB : 40 * MIB;
    CHECK(small >= least && small <= 64 * MIB, "%zu", small);
    void *too_large = malloc(2048 * MIB);
    CHECK(!too_large && errno == ENOMEM);
    give_back(0);
    size_t large = take_all(MIB, false);
    CHECK(large >= 40 * MIB && large <= 64 * MIB, "%zu", large);
    give_back(0);
    /* Below what there is already: nothing new can be had, the old is not lost. */
    limit.rlim_cur = 16 * MIB;
    CHECK(!setrlimit(RLIMIT_AS, &limit));
    for (int at = 0; at < HELD; at++)
        if (held.block[at])
            verify(held.block[at]);
    take_all(300, false), take_all(100000, false);
    give_back(0);
    limit.rlim_cur = RLIM_INFINITY;
    CHECK(!setrlimit(RLIMIT_AS, &limit));
    churn(&held, 5000);
    churn_end(&held);
    CHECK(take_all(MIB, false) > 300 * MIB);
    give_back(0);
    list_end();
}

/* Private writable memory is limited instead (RLIMIT_DATA). */
static void data_limit(void)
{
    list_begin(1 << 20);
    struct rlimit limit = {96 * MIB, RLIM_INFINITY};
    CHECK(!setrlimit(RLIMIT_DATA, &limit));
    size_t bytes = take_all(100000, true);
    CHECK(bytes >= 64 * MIB && bytes <= 96 * MIB, "%zu", bytes);
    give_back(0);
    bytes = take_all(200, true);
    CHECK(bytes >= 64 * MIB && bytes <= 96 * MIB, "%zu", bytes);
    give_back(0);
    list_end();
}

/* Several threads meet the end together. */
static void *starved(void *argument)
{
    Held *held = calloc(1, sizeof *held);
    Random random = {(uintptr_t)argument};
    unsigned refused = 0;
    CHECK(held);
    for (int round = 0; round < 5000; round++) {
        void **slot = &held->block[next(&random) % HELD];
        drop(*slot);
        *slot = NULL;
        size_t size = next(&random) % 4 ? 16 + next(&random) % 60000 : 16 + next(&random) % (8 * MIB);
        errno = 0;
        *slot = malloc(size);
        if (*slot)
            mark(*slot, size);
        else {
            CHECK(errno == ENOMEM);
            refused++;
        }
    }
    churn_end(held);
    free(held);
    return (void *)(uintptr_t)refused;
}

static void starving_threads(void)
{
    struct rlimit limit = {memory_of(0).mapped + 400 * MIB, RLIM_INFINITY};
    pthread_t thread[4];
    for (uintptr_t at = 0; at < 4; at++)
        CHECK(!pthread_create(&thread[at], NULL, starved, (void *)(at + 1)));
    CHECK(!setrlimit(RLIMIT_AS, &limit));
    for (int at = 0; at < 4; at++)
        CHECK(!pthread_join(thread[at], NULL));
    limit.rlim_cur = RLIM_INFINITY;
    CHECK(!setrlimit(RLIMIT_AS, &limit));
    Held held = {.random.state = 3};
    churn(&held, 5000);
    churn_end(&held);
}

/* A limit of our own (knob hard_limit), of HARD_MIB: small and large blocks share it, and it is kept. */
static size_t hard_limit(void)
{
    const char *mib = getenv("HARD_MIB");
    CHECK(mib, "run it with hard_limit and HARD_MIB");
    return strtoul(mib, NULL, 10) * MIB;
}

static void bounded(void)
{
    static const size_t sizes[] = {64, 4 * MIB, 400, 100000, 5000, 20000, 33000, 64, MIB, 3000, 4 * MIB};
    size_t limit = hard_limit(), before = memory_of(0).resident, listed = 0;
    const char *text = getenv("LEAST");
    size_t least = text ? strtoul(text, NULL, 10) : 0;
    /* So that no number of blocks fills the limit to the last byte. */
    void *other = malloc(1000);
    CHECK(other);
    list_begin(limit / 64 + 1);
    for (size_t at = 0; at < sizeof sizes / sizeof sizes[0]; at++) {
        size_t size = sizes[at];
        if (size < least)
            continue;
        /* All that the blocks before it had is free by now: lazily, cached, in slabs of another size. */
        size_t all = take_all(size, false), most = memory_of(0).resident;
        CHECK(all < limit && all >= limit - limit / 4, "%zu bytes in blocks of %zu of %zu", all, size, limit);
        /* Of the program's own: descriptors of pages, the list at its longest, what stdio and statm's reader need. */
        listed = count > listed ? count : listed;
        CHECK(most < before + limit + limit / 32 + listed * sizeof *list + MIB, "%zu resident, %zu before", most, before);
        void *block = &block;
        for (int round = 0; round < 1000; round++) { /* a storm is answered, too */
            errno = 0;
            CHECK(calloc(1, 8 * MIB) == NULL && errno == ENOMEM);
            CHECK(posix_memalign(&block, 4096, 8 * MIB) == ENOMEM && block == &block);
            errno = 0;
            CHECK(aligned_alloc(MIB, 8 * MIB) == NULL && errno == ENOMEM);
            errno = 0;
            CHECK(realloc(list[round % count], 2 * limit) == NULL && errno == ENOMEM);
            errno = 0;
            CHECK(reallocarray(list[round % count], 16, MIB) == NULL && errno == ENOMEM);
            errno = 0;
            CHECK(malloc((size_t)1 << 45) == NULL && errno == ENOMEM);
        }
        for (size_t which = 0; which < count; which++)
            CHECK(verify(list[which]) == size);
        give_back(count / 2);
        size_t again = take_all(size, false);
        CHECK(again >= all / 4, "%zu of %zu bytes again", again, all);
        give_back(0);
    }
    list_end();
    /* One that grows to the end: its pages move, or it grows where it is, but it is never there twice. */
    size_t size = MIB, step = limit / 64;
    unsigned char *block = malloc(size);
    CHECK(block);
    memset(block, 7, size);
    for (void *grown; (grown = realloc(block, size + step)); size += step) {
        block = grown;
        memset(block + size, 7, step);
    }
    CHECK(errno == ENOMEM && size >= limit - limit / 8, "grew to %zu of %zu", size, limit);
    for (size_t at = 0; at < size; at++)
        CHECK(block[at] == 7);
    free(block);
    Held held = {.random.state = 3};
    churn(&held, 5000);
    churn_end(&held);
    free(other);
}

/* Threads at the limit, all the time; what was small and theirs can be large and another's afterwards. */
static void bounded_threads(void)
{
    size_t limit = hard_limit(), refused = 0;
    void *result;
    pthread_t thread[4];
    for (uintptr_t at = 0; at < 4; at++)
        CHECK(!pthread_create(&thread[at], NULL, starved, (void *)(at + 1)));
    for (int at = 0; at < 4; at++) {
        CHECK(!pthread_join(thread[at], &result));
        refused += (size_t)(uintptr_t)result;
    }
    CHECK(refused > 0, "nothing was refused");
    list_begin(limit / 64 + 1);
    for (size_t size = 48; size < 16 * MIB; size *= 7) {
        size_t all = take_all(size, false);
        CHECK(all >= limit - limit / 4 && all < limit, "%zu bytes in blocks of %zu", all, size);
        give_back(0);
    }
    list_end();
}

/* The system has no more mappings for us: every call that makes one fails. */
static void no_mappings(void)
{
    Held held = {.random.state = 6};
    churn(&held, 20000);
    list_begin(CAP / 64 + 1);
    static const int calls[] = {SYS_mmap, SYS_mprotect, SYS_mremap};
    if (!deny(calls, 3, SECCOMP_RET_ERRNO | ENOMEM)) {
        say("skipped: no seccomp here\n");
        return;
    }
    static const size_t sizes[] = {64, 400, 5000, 33000, 200000, 2 * MIB};
    for (size_t at = 0; at < sizeof sizes / sizeof sizes[0]; at++) {
        take_all(sizes[at], false); /* glibc goes on by brk, so it may not end */
        for (size_t which = 0; which < count; which++)
            CHECK(verify(list[which]) == sizes[at]);
        size_t before = count;
        give_back(before / 2);
        take_all(sizes[at], false);
        if (count + 8 < before)
            malloc_stats();
        CHECK((before - (count < before ? count : before)) * sizes[at] <= 8 * sizes[at], "%zu of %zu blocks of %zu", count, before, sizes[at]);
        void *grown = count ? realloc(list[count - 1], sizes[at] * 3) : NULL;
        if (grown)
            list[count - 1] = grown, mark(grown, sizes[at]);
        give_back(0);
    }
    for (int at = 0; at < HELD; at++)
        if (held.block[at])
            verify(held.block[at]);
    churn_end(&held);
}

/* As little, from so much at the end: single free slabs must do for smaller objects and for what describes them. */
static void singles(size_t begin)
{
    list_begin(CAP / 16);
    while (count < begin / 64)
        mark(list[count++] = malloc(64), 64);
    static const int calls[] = {SYS_mmap, SYS_mprotect, SYS_mremap};
    if (!deny(calls, 3, SECCOMP_RET_ERRNO | ENOMEM)) {
        say("skipped: no seccomp here\n");
        return;
    }
    take_all(64, false);
    size_t all = count, kept = 0;
    for (size_t at = 0; at < all; at++)
        if ((uintptr_t)list[at] / 16384 % 2)
            list[kept++] = list[at];
        else
            free(list[at]);
    count = kept;
    take_all(16, false);
    size_t bytes = (count - kept) * 16, freed = (all - kept) * 64;
    CHECK(bytes >= freed / 4 * 3, "%zu of %zu bytes again", bytes, freed);
    give_back(0);
}

static void no_mappings_singles(void)
{
    void *own = malloc(MIB);
    mark(own, MIB);
    for (size_t begin = MIB; begin <= 16 * MIB; begin *= 2) {
        pid_t child = fork();
        if (!child) {
            singles(begin);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && !status, "from %zu: %#x", begin, status);
    }
    CHECK(verify(own) == MIB);
    free(own);
}

/* Memory cannot be given back either. */
static void no_advice(void)
{
    static const int calls[] = {SYS_madvise, SYS_munmap, SYS_process_madvise};
    if (!deny(calls, 3, SECCOMP_RET_ERRNO | EINVAL)) {
        say("skipped: no seccomp here\n");
        return;
    }
    Held held = {.random.state = 6};
    for (int round = 0; round < 20; round++) {
        churn(&held, 5000);
        malloc_trim(0);
        for (size_t size = 1000; size < 30 * MIB; size *= 7) {
            unsigned char *block = calloc(1, size);
            CHECK(block);
            for (size_t at = 0; at < size; at++)
                CHECK(block[at] == 0, "calloc(%zu) at %zu", size, at);
            memset(block, 0xa5, size);
            free(block);
        }
    }
    churn_end(&held);
}

static const int strict[] = {SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_mremap, SYS_futex,
    SYS_write, SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_brk, SYS_restart_syscall,
    /* only for glibc's malloc */
    SYS_getrandom, SYS_sched_getaffinity, SYS_openat, SYS_newfstatat, SYS_read, SYS_close, SYS_prctl, SYS_gettid};

static bool kill_others(void)
{
    int length = getenv("LIMITS_EXTRA") ? sizeof strict / sizeof strict[0] : 12;
    if (deny(strict, -length, SECCOMP_RET_KILL_PROCESS))
        return true;
    say("skipped: no seccomp here\n");
    return false;
}

/* From the first line of main, any other call kills the process. */
static void kills(void)
{
    if (!kill_others())
        return;
    static Held held;
    held.random.state = 8;
    churn(&held, 50000);
    churn_end(&held);
    for (size_t size = 100; size < 300 * MIB; size *= 9) {
        char *block = malloc(size);
        CHECK(block);
        memset(block, 1, size);
        block = realloc(block, size * 2);
        CHECK(block && block[size - 1] == 1);
        free(block);
    }
    static char *many[40000];
    for (int at = 0; at < 40000; at++)
        CHECK(many[at] = malloc(900));
    for (int at = 0; at < 40000; at++)
        free(many[at]);
    malloc_trim(0);
    mallinfo2();
    say("ok kills\n");
    _exit(0);
}

static atomic_int ready, go;
static pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER;
static void *filtered(void *argument)
{
    static Held helds[4];
    Held *held = &helds[(uintptr_t)argument];
    held->random.state = (uintptr_t)argument;
    ready++;
    while (!go)
        ;
    churn(held, 30000);
    churn_end(held);
    ready--;
    pthread_mutex_lock(&never); /* the end of a thread makes other calls */
    return NULL;
}

static void kills_threads(void)
{
    pthread_t thread[3];
    pthread_mutex_lock(&never);
    for (uintptr_t at = 0; at < 3; at++)
        CHECK(!pthread_create(&thread[at], NULL, filtered, (void *)at));
    while (ready < 3)
        ;
    if (!kill_others())
        return;
    go = 1;
    while (ready)
        ;
    free(malloc(100 * MIB));
    malloc_trim(0);
    say("ok kills_threads\n");
    _exit(0);
}

/* A sandbox closes late: what worked at the start is refused from now on, and
 * trims, forks, spawned children and new threads come only then. */
static atomic_int stop_late;
static void *at_work(void *argument)
{
    Held *held = calloc(1, sizeof *held);
    CHECK(held);
    held->random.state = (uintptr_t)argument;
    while (!stop_late)
        churn(held, 200);
    churn_end(held);
    free(held);
    return NULL;
}

/* `calls` are refused or kill; where they are only refused a third thread and spawned children come, too. */
static void filter_late(const int *calls, int listed, unsigned answer, unsigned seed)
{
    bool refuses = answer != SECCOMP_RET_KILL_PROCESS;
    int threads = refuses ? 3 : 2;
    static Held held;
    held.random.state = seed;
    churn(&held, 20000);
    pthread_t thread[3];
    for (uintptr_t at = 0; at < 2; at++)
        CHECK(!pthread_create(&thread[at], NULL, at_work, (void *)(at + 1)));
    if (!deny(calls, listed, answer)) {
        say("skipped: no seccomp here\n");
        stop_late = 1;
        return;
    }
    if (refuses) {
        errno = 0;
        CHECK(syscall(SYS_membarrier, 0, 0, 0) == -1 && errno == EPERM);
        CHECK(!pthread_create(&thread[2], NULL, at_work, (void *)3));
    }
    for (int round = 0; round < 20; round++) {
        churn(&held, 2000);
        malloc_trim(0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            churn(&held, 2000);
            malloc_trim(0);
            churn_end(&held);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "child: %#x", status);
        char *words[] = {"true", NULL};
        CHECK(!refuses || !posix_spawnp(&child, "true", NULL, NULL, words, environ));
        CHECK(!refuses || (waitpid(child, &status, 0) == child && status == 0), "spawned: %#x", status);
    }
    stop_late = 1;
    for (int at = 0; at < threads; at++)
        CHECK(!pthread_join(thread[at], NULL));
    churn_end(&held);
}

static void late_filter(void)
{
    static const int calls[] = {SYS_membarrier, SYS_getcpu, SYS_sched_getaffinity, SYS_prctl};
    filter_late(calls, 4, SECCOMP_RET_ERRNO | EPERM, 11);
}

/* The same, but what is refused kills: fences, and the placing of memory. */
static void filter_kills_late(void)
{
    static const int calls[] = {SYS_membarrier, SYS_mbind, SYS_process_madvise, SYS_get_mempolicy, SYS_openat};
    filter_late(calls, 5, SECCOMP_RET_KILL_PROCESS, 12);
}

static void zero_and_dirty(void)
{
    for (int round = 0; round < 3; round++)
        for (size_t size = 500; size < 12 * MIB; size *= 3) {
            unsigned char *block[8];
            for (int at = 0; at < 8; at++) {
                CHECK(block[at] = calloc(1, size));
                for (size_t byte = 0; byte < size; byte += byte % 4096 ? 4096 - byte % 4096 : 511)
                    CHECK(block[at][byte] == 0, "calloc(%zu) at %zu", size, byte);
                memset(block[at], 0xa5, size);
            }
            for (int at = 0; at < 8; at++)
                free(block[at]);
            malloc_trim(0);
        }
}

/* All memory locked: advice to give it back fails, wholly or half done. */
static void locked(void)
{
    Held held = {.random.state = 9};
    churn(&held, 5000);
    struct rlimit limit;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) {
        say("skipped: mlockall refused\n");
        churn_end(&held);
        return;
    }
    zero_and_dirty();
    churn(&held, 20000);
    churn_end(&held);
    munlockall();
    zero_and_dirty();
}

/* The same with a small limit of locked memory and nobody's rights: what is
 * reserved must not count against it. */
static void locked_as_user(void)
{
    struct rlimit limit;
    CHECK(!getrlimit(RLIMIT_MEMLOCK, &limit));
    if (limit.rlim_max > 128 * MIB)
        limit.rlim_max = 128 * MIB;
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_cur < 8 * MIB || setrlimit(RLIMIT_MEMLOCK, &limit)) {
        say("skipped: next to nothing may be locked\n");
        return;
    }
    if (getuid() == 0 && (setgid(65534) || setuid(65534))) {
        say("skipped: cannot become another user\n");
        return;
    }
    if (mlockall(MCL_FUTURE)) {
        say("skipped: mlockall refused\n");
        return;
    }
    list_begin(100000);
    while (count < limit.rlim_cur / 8 / 1000) {
        CHECK(list[count] = malloc(1000), "block %zu", count);
        mark(list[count++], 1000);
    }
    void *large = malloc(limit.rlim_cur / 8);
    CHECK(large);
    free(large);
    give_back(0);
    list_end();
}

/* In a memory cgroup of 64 MiB, never more than 40 live: it must not be killed. */
static void frugal(void)
{
    static const size_t sizes[] = {64, 1000, 100000, 20000, 4 * MIB, 300, 33000, 64, 2 * MIB};
    list_begin(MIB);
    for (int round = 0; round < 2; round++)
        for (size_t at = 0; at < sizeof sizes / sizeof sizes[0]; at++) {
            for (size_t bytes = 0; bytes < 40 * MIB && count < room; bytes += sizes[at] + 16) {
                CHECK(list[count] = malloc(sizes[at]));
                memset(list[count], 1, sizes[at]);
                mark(list[count++], sizes[at]);
            }
            give_back(0);
        }
    list_end();
}

/* There is no end to its hunger: the caller's cgroup kills it. */
static void greedy(void)
{
    for (size_t bytes = 0; bytes < CAP; bytes += MIB)
        memset(malloc(MIB), 1, MIB);
}

int main(int argc, char **argv)
{
    static const Case cases[] = {
        {"limited", limited}, {"late_limit", late_limit}, {"data_limit", data_limit}, {"starving_threads", starving_threads},
        {"no_mappings", no_mappings}, {"no_mappings_singles", no_mappings_singles}, {"no_advice", no_advice}, {"kills", kills}, {"kills_threads", kills_threads},
        {"late_filter", late_filter}, {"filter_kills_late", filter_kills_late}, {"locked", locked}, {"locked_as_user", locked_as_user}, 
        {"bounded", bounded}, {"bounded_threads", bounded_threads}, {"frugal", frugal}, {"greedy", greedy}, 
        
    };
    CHECK(argc == 2, "limits CASE");
    return RUN_CASES(cases);
}
