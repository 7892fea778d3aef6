// about: threads that grow, shrink, clear and free each other's blocks of up to 900 MiB, in spaces of their own by then; every page's stamp stays
// args: 0
// args: 1
#include "../c/check.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

enum { SLOTS = 32, THREADS = 3, STEP = 4096 };
/* Of what is longer only so much is stamped. */
#define MOST ((size_t)24 << 20)

typedef struct {
    pthread_mutex_t lock;
    char *at;
    size_t stamped;
    uint64_t seed;
} Block;

static Block blocks[SLOTS];
static double end;
static int forks;

static uint64_t *word(Block *block, size_t at) { return (uint64_t *)(block->at + at); }

static void stamp(Block *block, size_t bytes)
{
    for (size_t at = block->stamped; at + 8 <= bytes; at += STEP)
        *word(block, at) = block->seed ^ at, block->stamped = at + STEP;
}

static void check(Block *block, size_t bytes, const char *when)
{
    for (size_t at = 0; at < block->stamped && at + 8 <= bytes; at += STEP)
        CHECK(*word(block, at) == (block->seed ^ at), "%s: %zx of %zx", when, at, bytes);
}

/* Untouched and of many sizes: all threads want the lock of all areas. */
static void crowd(Random *random)
{
    static __thread void *some[64];
    for (int round = 0; round < 100000; round++) {
        uint64_t dice = next(random);
        free(some[dice % 64]);
        CHECK(some[dice % 64] = malloc(40000 + (dice >> 20) % 400000));
    }
    for (int at = 0; at < 64; at++)
        free(some[at]);
}

static void turn(Block *block, uint64_t dice)
{
    size_t size = (dice >> 20) % (600 << 10) + 1;
    if ((dice >> 8) % 8 == 0)
        size += (size_t)600 << 20;
    else if ((dice >> 8) % 8 < 3)
        size = (dice >> 20) % (20 << 20) + 1;
    size_t most = size < MOST ? size : MOST;
    if ((dice >> 12) % 6 < 4) {
        char *then = realloc(block->at, size);
        CHECK(then && malloc_usable_size(then) >= size, "%zu", size);
        block->at = then;
        check(block, size, "realloc");
        /* What was cut off is gone. */
        if (block->stamped > size)
            block->stamped = size < 8 ? 0 : (size - 8) / STEP * STEP + STEP;
    } else {
        check(block, MOST + STEP, "free");
        free(block->at);
        CHECK(block->at = calloc(1, size), "%zu", size);
        for (size_t at = 0; at + 8 <= most; at += 512)
            CHECK(*word(block, at) == 0, "calloc: %zx of %zx", at, size);
        block->stamped = 0;
        block->seed = dice;
    }
    stamp(block, most);
    if (forks && (dice >> 40) % 100 == 0) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            check(block, MOST + STEP, "child");
            char *more = realloc(malloc(100000), 5000000);
            memset(more, 2, 5000000);
            free(more);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0, "%x", status);
    }
}

static void *runs(void *argument)
{
    Random random = {(uintptr_t)argument};
    crowd(&random);
    while (now() < end) {
        uint64_t dice = next(&random);
        Block *block = &blocks[dice % SLOTS];
        if (pthread_mutex_trylock(&block->lock) == 0) {
            turn(block, dice);
            pthread_mutex_unlock(&block->lock);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    forks = atoi(argv[1]);
    end = now() + 0.6;
    for (int at = 0; at < SLOTS; at++)
        pthread_mutex_init(&blocks[at].lock, NULL);
    for (uintptr_t at = 0; at < THREADS; at++)
        CHECK(!pthread_create(&threads[at], NULL, runs, (void *)(at + 1)));
    for (int at = 0; at < THREADS; at++)
        CHECK(!pthread_join(threads[at], NULL));
    for (int at = 0; at < SLOTS; at++) {
        check(&blocks[at], MOST + STEP, "end");
        free(blocks[at].at);
    }
    puts("ok");
}
