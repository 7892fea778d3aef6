/* What must hold whichever system call of the allocator is refused: every byte is checked, NULL comes with ENOMEM
 * and with nothing lost, `errno` and the signal mask stay as they were, and what is freed goes back. For
 * cli/tests/refused.rs, which says what each case finds in its environment; each passes under glibc.
 *
 * REFUSED_KEEPS: the calls that give memory back are refused for good, so that what stays is not looked at. REFUSED_FENCES: what CPUs cache may
 * stay. */
#include "check.h"
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Answers of NULL. */
static atomic_uint nothing;
/* So many in a row of steps are enough: each is worth hundreds of calls that are refused. */
#define ENOUGH 24
/* No call that works, and none that frees, touches errno; one that fails leaves ENOMEM there. */
#define UNTOUCHED 4711

static void *had(void *block)
{
    if (block)
        CHECK(errno == UNTOUCHED);
    else {
        CHECK(errno == ENOMEM);
        nothing++;
    }
    return block;
}

static void *take(size_t size)
{
    errno = UNTOUCHED;
    return had(malloc(size));
}

static void *take_zero(size_t size)
{
    errno = UNTOUCHED;
    unsigned char *block = had(calloc(1, size));
    for (size_t at = 0; block && at < size; at = at + 64 < size || at + 1 == size ? at + 64 : size - 1)
        CHECK(block[at] == 0, "calloc %p of %zu not zero at %zu", block, size, at);
    return block;
}

static void *take_aligned(size_t align, size_t size)
{
    void *block = NULL;
    errno = UNTOUCHED;
    int error = posix_memalign(&block, align, size);
    CHECK(errno == UNTOUCHED || error);
    if (error) {
        CHECK(error == ENOMEM, "posix_memalign says %d", error);
        nothing++;
        return NULL;
    }
    CHECK((uintptr_t)block % align == 0, "%p is not aligned to %zu", block, align);
    return block;
}

static void give(void *block)
{
    errno = UNTOUCHED;
    free(block);
    CHECK(errno == UNTOUCHED);
}

static void *marked(void *block, size_t size)
{
    if (block)
        mark(block, size);
    return block;
}

static void give_marked(void *block)
{
    if (block) {
        verify(block);
        *(uint64_t *)block = 0;
    }
    give(block);
}

/* What stays when nothing is in use: caches, and free memory up to the floors of the knobs; and what CPUs cache, where a
 * filter may forbid the fence that a drain needs. */
static size_t stays = 6 * MIB;
static size_t at_first;

static void is_small_again(void)
{
    /* (Twice: what was refused once goes the next time.) */
    for (int round = 0; round < 2; round++) {
        errno = UNTOUCHED;
        malloc_trim(0);
        CHECK(errno == UNTOUCHED || errno == ENOMEM);
    }
    size_t now = memory_of(0).resident;
    CHECK(getenv("REFUSED_KEEPS") || now < at_first + stays, "%zu KiB stay of nothing, %zu KiB at first", now >> 10,
          at_first >> 10);
}

/* Small blocks of every class, allocated and freed in another order. */
#define SLOTS 512
static void small(uint64_t seed, unsigned rounds)
{
    void *slot[SLOTS] = {0};
    Random random = {seed};
    unsigned before = nothing;
    while (rounds-- && nothing < before + ENOUGH) {
        uint64_t dice = next(&random);
        void **at = &slot[dice % SLOTS];
        give_marked(*at);
        *at = NULL;
        dice >>= 16;
        size_t size = 16 + (dice >> 8) % (dice % 8 ? 1000 : 32000);
        switch (dice % 16) {
        case 0: break;
        case 1: *at = marked(take_zero(size), size); break;
        case 2: *at = marked(take_aligned(16 << dice / 16 % 9, size), size); break;
        default: *at = marked(take(size), size);
        }
    }
    for (int at = 0; at < SLOTS; at++)
        give_marked(slot[at]);
}

/* Many of a size at a time: pages, windows and descriptors are opened for them. */
static void many(size_t size, unsigned count)
{
    void **block = mmap(NULL, count * sizeof *block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(block != MAP_FAILED);
    unsigned before = nothing;
    for (unsigned at = 0; at < count && nothing < before + ENOUGH; at++)
        block[at] = marked(take(size), size);
    for (unsigned at = 0; at < count; at += 2)
        give_marked(block[at]), block[at] = NULL;
    for (unsigned at = 0; at < count; at++)
        give_marked(block[at]);
    munmap(block, count * sizeof *block);
}

static void large(uint64_t seed, unsigned rounds)
{
    void *slot[8] = {0};
    Random random = {seed};
    unsigned before = nothing;
    while (rounds-- && nothing < before + ENOUGH) {
        uint64_t dice = next(&random);
        void **at = &slot[dice % 8];
        give_marked(*at);
        size_t size = 40 * KIB + (dice >> 16) % (dice >> 8 & 7 ? 256 * KIB : 6 * MIB);
        dice = dice >> 11 & 7;
        *at = marked(dice < 3 ? take_zero(size) : dice == 3 ? take_aligned(1 * MIB, size) : take(size), size);
    }
    for (int at = 0; at < 8; at++)
        give_marked(slot[at]);
}

static void giant(void)
{
    for (int round = 0; round < 2; round++) {
        size_t size = (600 + 100 * round) * MIB;
        char *block = round ? take(size) : calloc(1, size);
        if (!block) {
            CHECK(errno == ENOMEM);
            nothing++;
            continue;
        }
        for (size_t at = 0; at < size; at += 50 * MIB) {
            CHECK(round || block[at] == 0);
            block[at] = 1;
        }
        give(block);
    }
}

/* Blocks that realloc grows, where they are, by page tables and by copies; two of them, so that they are in each
 * other's way. One that it cannot grow is as it was. */
static void grow(void)
{
    unsigned char *block[2] = {0};
    size_t size[2] = {0};
    for (unsigned step = 0; step < 36; step++) {
        int which = step % 2;
        size_t wanted = step < 24 ? (size[which] ? size[which] * 5 / 3 : 20 * KIB) : size[which] / 2 + 100;
        errno = UNTOUCHED;
        unsigned char *grown = had(realloc(block[which], wanted));
        size_t valid = size[which];
        if (grown) {
            block[which] = grown;
            valid = valid < wanted ? valid : wanted;
        }
        for (size_t at = 0; at < valid; at += at < 4096 ? 1 : 509)
            CHECK(block[which][at] == (unsigned char)(at * 7 + at / 4096 + which), "byte %zu of %zu, step %u", at, valid,
                  step);
        if (!grown)
            continue;
        for (size_t at = valid; at < wanted; at++)
            grown[at] = (unsigned char)(at * 7 + at / 4096 + which);
        size[which] = wanted;
    }
    give(block[0]);
    give(block[1]);
}

static void heap(void)
{
    small(1, 3000);
    many(4000, 1500);
    many(64, 20000);
    large(2, 60);
    giant();
    grow();
    small(3, 1000);
}

/* Two threads that free what the other allocated. */
static _Atomic(void *) table[256];
static void *exchange(void *argument)
{
    Random random = {(uintptr_t)argument};
    unsigned before = nothing;
    for (int round = 0; round < 4000 && nothing < before + ENOUGH; round++) {
        uint64_t dice = next(&random);
        size_t size = 16 + (dice >> 16) % (dice % 64 ? 2000 : 200000);
        give_marked(atomic_exchange(&table[(dice >> 8) % 256], marked(take(size), size)));
    }
    return NULL;
}

static void threads(void)
{
    for (int round = 0; round < 2; round++) {
        pthread_t other;
        int error = pthread_create(&other, NULL, exchange, (void *)(uintptr_t)(round + 8));
        CHECK(!error || error == EAGAIN || error == ENOMEM);
        if (error)
            nothing++;
        exchange((void *)(uintptr_t)(round + 16));
        CHECK(error || !pthread_join(other, NULL));
    }
    for (int at = 0; at < 256; at++)
        give_marked(atomic_exchange(&table[at], NULL));
}

static void ended(pid_t child)
{
    int status = 0;
    pid_t got;
    while ((got = waitpid(child, &status, 0)) < 0 && errno == EINTR)
        ;
    CHECK(got == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: status %#x", status);
}

static void children(void)
{
    void *kept[64];
    for (int at = 0; at < 64; at++) {
        size_t size = 100 + at * at * 40;
        kept[at] = marked(take(size), size);
    }
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        CHECK(child >= 0 || errno == ENOMEM || errno == EAGAIN);
        if (child == 0) {
            for (int at = 0; at < 64; at++)
                give_marked(kept[at]);
            small(5, 500);
            large(6, 10);
            if (round) {
                threads();
                child = fork();
                if (child == 0) {
                    small(7, 300);
                    _exit(0);
                }
                CHECK(child >= 0 || errno == ENOMEM || errno == EAGAIN);
                if (child > 0)
                    ended(child);
            }
            malloc_trim(0);
            _exit(0);
        }
        small(8, 300);
        if (child > 0)
            ended(child);
    }
    /* (The library's own: refused as any call of the program's.) */
    pid_t child = vfork();
    if (child == 0)
        _exit(0);
    if (child > 0)
        ended(child);
    small(9, 300);
    char *words[] = {"true", NULL}, *none[] = {NULL};
    if (!posix_spawn(&child, "/bin/true", NULL, NULL, words, none))
        ended(child);
    for (int at = 0; at < 64; at++)
        give_marked(kept[at]);
}

/* What changes the whole process: our threads leave, and come again. */
static void credentials(void)
{
    CHECK(!setgid(getgid()) || errno == EPERM || errno == EAGAIN || errno == ENOMEM);
    small(10, 300);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    stays += 6 * MIB;
    small(11, 300);
    large(12, 10);
}

static void life(void)
{
    threads();
    children();
    credentials();
}

static void nap(void)
{
    struct timespec time = {0, 50000000};
    nanosleep(&time, NULL);
}

/* Memory that is freed goes back by itself, within some seconds (knobs keeper_bytes=1, idle_seconds=1). */
static void idle(void)
{
    enum { COUNT = 12000 };
    static void *block[COUNT];
    for (int at = 0; at < COUNT && nothing < ENOUGH; at++) {
        size_t size = at % 500 ? 2000 : 300000;
        block[at] = marked(take(size), size);
    }
    threads();
    size_t most = memory_of(0).resident;
    for (int at = 0; at < COUNT; at++)
        if (at % 512)
            give_marked(block[at]), block[at] = NULL;
    double end = now() + 15;
    size_t left;
    while ((left = memory_of(0).resident) > at_first + stays && now() < end && !getenv("REFUSED_KEEPS"))
        nap();
    /* (The keeper may be what was refused: then the next slow call does it.) */
    if (left > at_first + stays)
        is_small_again();
    CHECK(most > at_first + 20 * MIB || nothing);
    for (int at = 0; at < COUNT; at++)
        give_marked(block[at]);
    pid_t child = fork();
    CHECK(child >= 0 || errno == ENOMEM || errno == EAGAIN);
    if (child == 0) {
        large(20, 60);
        _exit(0);
    }
    if (child > 0)
        ended(child);
    credentials();
    large(21, 30);
}

/* Much memory, freed by several threads (knob async_free_threshold=1). */
static void free_many(void)
{
    for (int round = 0; round < 2; round++) {
        void *block[6];
        for (int at = 0; at < 6; at++) {
            size_t size = (3 + at) * MIB;
            block[at] = take(size);
            if (block[at])
                memset(block[at], at + 1, size);
        }
        for (int at = 0; at < 6; at++) {
            for (size_t byte = 0; block[at] && byte < (3 + at) * MIB; byte += 4096)
                CHECK(((char *)block[at])[byte] == at + 1);
            give(block[at]);
        }
        small(30, 500);
    }
}

/* Under a hard limit (48 MiB) requests are refused, and nothing is lost. */
static void bounded(void)
{
    void *block[80];
    unsigned before = nothing;
    for (int at = 0; at < 80; at++)
        block[at] = marked(take(1 * MIB + at), 1 * MIB + at);
    CHECK(getenv("REFUSED_PLAIN") || nothing > before);
    for (int at = 0; at < 80; at++)
        give_marked(block[at]);
    nothing = before;
    small(40, 1000);
    threads();
    children();
    void *one = take(8 * MIB);
    CHECK(one || nothing > before);
    give(one);
}

static void mixed(void)
{
    small(50, 2000);
    large(51, 30);
    grow();
    threads();
    children();
}

/* Looked into and steered from outside while it works (published; REFUSED_COMMAND is the command). What the command
 * gets is not looked at: it may be told that nobody answers. */
static void asked(void)
{
    char *command = getenv("REFUSED_COMMAND"), pid[16], *none[] = {NULL};
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    char *words[][5] = {
        {"allotment", "stat", pid}, {"allotment", "purge", pid}, {"allotment", "drain", pid},
        {"allotment", "tune", pid, "lazy_floor=2M"},
    };
    many(4000, 4000);
    for (int at = 0; command && at < 4; at++) {
        posix_spawn_file_actions_t actions;
        pid_t child = 0;
        int status;
        posix_spawn_file_actions_init(&actions);
        if (!posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0)
            && !posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0)
            && posix_spawn(&child, command, &actions, NULL, words[at], none))
            child = 0;
        posix_spawn_file_actions_destroy(&actions);
        while (child > 0 && waitpid(child, &status, WNOHANG) == 0) {
            small(70 + at, 20);
            large(80 + at, 1);
            nap();
        }
    }
}

/* A process that ends with much memory (knob reap_bytes=1M): it ends all the same. */
static void end(void)
{
    void *block[40];
    for (int at = 0; at < 40; at++) {
        block[at] = take(1 * MIB);
        if (block[at])
            memset(block[at], at, 1 * MIB);
    }
    small(60, 500);
    for (int at = 0; at < 40; at++)
        for (size_t byte = 0; block[at] && byte < MIB; byte += 512)
            CHECK(((char *)block[at])[byte] == at);
    say(nothing ? "ok, with refusals\n" : "ok\n");
    exit(0);
}

int main(int argc, char **argv)
{
    static const Case cases[] = {
        {"heap", heap}, {"life", life}, {"idle", idle}, {"free", free_many}, {"bounded", bounded}, {"mixed", mixed},
        {"asked", asked},
        {"end", end},
    };
    CHECK(argc == 2);
    sigset_t mask, then;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    at_first = memory_of(0).resident;
    stays += getenv("REFUSED_FENCES") ? 16 * MIB : 0;
    for (size_t at = 0; at < sizeof cases / sizeof cases[0]; at++)
        if (!strcmp(argv[1], cases[at].name)) {
            cases[at].run();
            is_small_again();
            sigprocmask(SIG_BLOCK, NULL, &then);
            CHECK(sigismember(&then, SIGUSR1) && !sigismember(&then, SIGUSR2), "the signal mask has changed");
            say(nothing ? "ok, with refusals\n" : "ok\n");
            return 0;
        }
    CHECK(false, "no case %s", argv[1]);
}
