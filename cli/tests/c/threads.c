/* Many threads on one heap: frees far from the allocation, threads that come and
 * go by the thousand, signals and moves between CPUs in the middle of it all.
 * Every block carries a pattern of its own address and size, checked before it
 * is freed. THREADS_SECONDS (default 1) is how long a case keeps going. Passes
 * on plain glibc. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>

enum { THREADS = 6, SLOTS = 4096 };

static _Atomic(void *) slots[SLOTS];
static atomic_bool stop;
static atomic_ulong hits;
static cpu_set_t allowed;
static atomic_int thread_ids[THREADS];

static double seconds(void)
{
    const char *text = getenv("THREADS_SECONDS");
    return text ? atof(text) : 1;
}

static void pause_for(double length)
{
    for (double end = now() + length; now() < end;) {
        struct timespec nap = {0, 10000000};
        nanosleep(&nap, NULL);
    }
}

/* Swaps blocks with whoever put one there: most frees meet another CPU's block. */
static void trade(Random *random, unsigned rounds)
{
    while (rounds--) {
        void *block = NULL;
        if (next(random) % 8) {
            block = grab(random, some_size(random));
            CHECK(block);
        }
        drop(atomic_exchange(&slots[next(random) % SLOTS], block));
    }
}

static void empty_slots(void)
{
    for (int at = 0; at < SLOTS; at++)
        drop(atomic_exchange(&slots[at], NULL));
}

static void *trader(void *argument)
{
    Random random = {(uintptr_t)argument * 1000};
    Held *held = calloc(1, sizeof *held);
    held->random.state = (uintptr_t)argument;
    while (!stop) {
        trade(&random, 100);
        churn(held, 100);
    }
    churn_end(held);
    free(held);
    return NULL;
}

static void start(pthread_t *thread, void *(*run)(void *), uintptr_t argument)
{
    int failed = pthread_create(thread, NULL, run, (void *)argument);
    CHECK(!failed, "pthread_create: %d", failed);
}

static void with_threads(void *(*run)(void *), void (*meanwhile)(void))
{
    pthread_t thread[THREADS];
    stop = false;
    for (uintptr_t at = 0; at < THREADS; at++)
        start(&thread[at], run, at + 1);
    meanwhile();
    stop = true;
    for (int at = 0; at < THREADS; at++)
        CHECK(!pthread_join(thread[at], NULL));
    empty_slots();
}

static void wait_a_while(void) { pause_for(seconds()); }
static void cross(void) { with_threads(trader, wait_a_while); }

/* One side only allocates, the other only frees. */
enum { RING = 1 << 14 };
static void *ring[RING];
static atomic_size_t head, tail;

static void *producer(void *argument)
{
    Random random = {(uintptr_t)argument};
    while (!stop) {
        size_t at = atomic_load_explicit(&head, memory_order_relaxed);
        if (at - atomic_load_explicit(&tail, memory_order_acquire) == RING) {
            sched_yield();
            continue;
        }
        size_t dice = next(&random);
        ring[at % RING] = grab(&random, dice % 100 == 0 ? 40000 : 16 + dice % 300);
        CHECK(ring[at % RING]);
        atomic_store_explicit(&head, at + 1, memory_order_release);
    }
    return NULL;
}

static void *consumer(void *argument)
{
    (void)argument;
    for (;;) {
        size_t at = atomic_load_explicit(&tail, memory_order_relaxed);
        if (at == atomic_load_explicit(&head, memory_order_acquire)) {
            if (stop && at == atomic_load(&head))
                return NULL;
            sched_yield();
            continue;
        }
        drop(ring[at % RING]);
        atomic_store_explicit(&tail, at + 1, memory_order_release);
    }
}

static void one_way(void)
{
    pthread_t from, to;
    stop = false;
    start(&to, consumer, 0);
    start(&from, producer, 77);
    pause_for(seconds());
    stop = true;
    CHECK(!pthread_join(from, NULL));
    stop = true;
    CHECK(!pthread_join(to, NULL));
}

/* Threads that live for a moment, end with blocks in others' hands, and free in a key's destructor. */
static pthread_key_t key;
static void at_thread_end(void *block) { drop(block); free(malloc(100)); }

static void *short_lived(void *argument)
{
    Random random = {(uintptr_t)argument};
    trade(&random, 40);
    void *block = grab(&random, 200);
    CHECK(block && !pthread_setspecific(key, block));
    return NULL;
}

static void short_threads(void)
{
    CHECK(!pthread_key_create(&key, at_thread_end));
    int total = (int)(3000 * (seconds() > 1 ? seconds() : 1));
    for (int at = 0; at < total; at += 8) {
        pthread_t thread[8];
        for (int which = 0; which < 8; which++)
            start(&thread[which], short_lived, (uintptr_t)(at + which));
        for (int which = 0; which < 8; which++)
            CHECK(!pthread_join(thread[which], NULL));
    }
    /* Detached ones: their stacks and tables are freed by whoever comes next. (From the beginning: glibc's pthread_detach looks at
     * the thread once more when its stack may be unmapped already.) */
    pthread_attr_t detached;
    CHECK(!pthread_attr_init(&detached) && !pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED));
    for (int at = 0; at < total / 4; at++) {
        pthread_t thread;
        int failed = pthread_create(&thread, &detached, short_lived, (void *)(uintptr_t)at);
        CHECK(!failed, "pthread_create: %d", failed);
        if (at % 16 == 0)
            sched_yield();
    }
    CHECK(!pthread_attr_destroy(&detached));
    pause_for(0.2);
    empty_slots();
}

/* Handlers do not allocate; some give the CPU away in the middle of a sequence. */
static void on_signal(int number)
{
    int kept = errno;
    if (atomic_fetch_add(&hits, 1) % 4 == 0 && number != SIGPROF)
        sched_yield();
    errno = kept;
}

static pthread_t targets[THREADS];
static atomic_int started;

static void *target(void *argument)
{
    targets[(uintptr_t)argument - 1] = pthread_self();
    started++;
    return trader(argument);
}

static void shoot(void)
{
    while (started < THREADS)
        sched_yield();
    Random random = {5};
    for (double end = now() + seconds(); now() < end;)
        for (int at = 0; at < 50; at++) {
            pthread_kill(targets[next(&random) % THREADS], SIGUSR1);
            for (volatile unsigned spin = 0; spin < next(&random) % 4000; spin++)
                ;
        }
}

static void signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(!sigaction(SIGALRM, &action, NULL) && !sigaction(SIGPROF, &action, NULL) && !sigaction(SIGVTALRM, &action, NULL) && !sigaction(SIGUSR1, &action, NULL));
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL), setitimer(ITIMER_PROF, &often, NULL), setitimer(ITIMER_VIRTUAL, &often, NULL);
    started = 0;
    with_threads(target, shoot);
    setitimer(ITIMER_REAL, &never, NULL), setitimer(ITIMER_PROF, &never, NULL), setitimer(ITIMER_VIRTUAL, &never, NULL);
    CHECK(hits > 100, "%lu signals", (unsigned long)hits);
}

/* A handler that leaves by siglongjmp never comes back to the interrupted instruction;
 * it only interrupts code that holds nothing. */
#include <setjmp.h>
static sigjmp_buf back;
static volatile sig_atomic_t may_jump;
static void on_jump(int number)
{
    (void)number;
    if (may_jump) {
        may_jump = 0;
        siglongjmp(back, 1);
    }
}

static void jumps(void)
{
    struct sigaction action = {.sa_handler = on_jump};
    CHECK(!sigaction(SIGALRM, &action, NULL));
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    Held *held = calloc(1, sizeof *held);
    for (volatile int round = 0; round < 200; round++) {
        if (!sigsetjmp(back, 1)) {
            may_jump = 1;
            for (;;)
                ;
        }
        churn(held, 200);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    churn_end(held);
    free(held);
}

/* Threads that move themselves and are moved by others. */
static void *wanderer(void *argument)
{
    Random random = {(uintptr_t)argument};
    Held *held = calloc(1, sizeof *held);
    thread_ids[(uintptr_t)argument - 1] = (int)syscall(SYS_gettid);
    while (!stop) {
        hop(0, &allowed, &random);
        trade(&random, 16);
        churn(held, 16);
    }
    churn_end(held);
    free(held);
    return NULL;
}

static void push_around(void)
{
    Random random = {9};
    for (double end = now() + seconds(); now() < end;)
        for (int at = 0; at < 100; at++) {
            int id = thread_ids[next(&random) % THREADS];
            if (id)
                hop(id, &allowed, &random);
        }
}

static void migrate(void)
{
    CHECK(!sched_getaffinity(0, sizeof allowed, &allowed));
    with_threads(wanderer, push_around);
}

/* Threads that start and end while others trim and ask for statistics. */
static void trim_and_look(void)
{
    for (double end = now() + seconds(); now() < end;) {
        malloc_trim(0);
        struct mallinfo2 info = mallinfo2();
        CHECK(info.uordblks < (size_t)1 << 40, "%zu", info.uordblks);
        usleep(500);
    }
}

static void trim(void) { with_threads(trader, trim_and_look); }

/* More threads than CPUs by far, all alive at once. */
static pthread_barrier_t barrier;
static void *one_of_many(void *argument)
{
    Random random = {(uintptr_t)argument};
    trade(&random, 20);
    pthread_barrier_wait(&barrier);
    trade(&random, 20);
    return NULL;
}

static void many(void)
{
    enum { MOST = 1000 };
    static pthread_t thread[MOST];
    const char *text = getenv("MANY");
    unsigned many = text ? strtoul(text, NULL, 10) : MOST;
    CHECK(many > 0 && many <= MOST);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 64 << 10);
    CHECK(!pthread_barrier_init(&barrier, NULL, many));
    for (uintptr_t at = 0; at < many; at++)
        CHECK(!pthread_create(&thread[at], &attr, one_of_many, (void *)at));
    for (unsigned at = 0; at < many; at++)
        CHECK(!pthread_join(thread[at], NULL));
    empty_slots();
}

int main(int argc, char **argv)
{
    static const Case cases[] = {
        {"cross", cross}, {"one_way", one_way}, {"short", short_threads}, {"signals", signals},
        {"jumps", jumps}, {"migrate", migrate}, {"trim", trim}, {"many", many},
    };
    return RUN_CASES(cases);
}
