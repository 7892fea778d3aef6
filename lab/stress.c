/* Threads that allocate, fill, check, resize and free, and pass blocks to each other; a fork now and then; and others
 * that drain and purge all the while.
 * usage: stress THREADS ROUNDS FORKS [DRAINERS]. Says "stress: ok" and ends with 0, or says what was wrong and ends with 1.
 * SIGTERM ends the rounds early. */
#include <allotment.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* There under the library only. */
#pragma weak allotment_drain
#pragma weak allotment_drain_idle

enum { SLOTS = 512 };
struct block {
    size_t size;
    unsigned char seed;
    unsigned char bytes[];
};
static _Atomic(struct block *) shared[SLOTS];
static atomic_int bad, ended;
static atomic_long drains, drained;
static int rounds, forks;

static void stop(int number) {
    (void)number;
    atomic_store(&ended, 1);
}

static struct block *fill(struct block *block, size_t size, unsigned char seed) {
    block->size = size;
    block->seed = seed;
    for (size_t at = 0; at < size; at++)
        block->bytes[at] = (unsigned char)(seed + at * 7);
    return block;
}

static void check(const struct block *block) {
    for (size_t at = 0; at < block->size; at++)
        if (block->bytes[at] != (unsigned char)(block->seed + at * 7)) {
            atomic_fetch_add(&bad, 1);
            fprintf(stderr, "stress: %p byte %zu of %zu is torn\n", (const void *)block, at, block->size);
            return;
        }
}

static void *work(void *argument) {
    unsigned random = 12345u + (unsigned)(size_t)argument * 977u;
    for (int round = 0; round < rounds && !atomic_load(&ended); round++) {
        random = random * 1103515245u + 12345u;
        unsigned kind = random >> 16;
        size_t size = kind % 64 == 0 ? 40000 + kind % 90000 : kind % 8 == 0 ? kind % 5000 : kind % 300;
        struct block *block = malloc(sizeof *block + size);
        if (!block)
            continue;
        fill(block, size, (unsigned char)kind);
        if (kind % 16 == 3) {
            struct block *more = realloc(block, sizeof *block + size * 2);
            if (more) {
                check(more);
                block = fill(more, size * 2, (unsigned char)(kind + 1));
            }
        }
        struct block *other = atomic_exchange(&shared[(random >> 8) % SLOTS], block);
        if (other) {
            check(other);
            free(other);
        }
        if (forks && round % (rounds / forks + 1) == rounds / forks) {
            pid_t child = fork();
            if (child == 0) {
                free(malloc(1000));
                _exit(atomic_load(&bad) != 0);
            }
            int status = 0;
            if (child > 0 && (waitpid(child, &status, 0) != child || status))
                atomic_fetch_add(&bad, 1);
        }
    }
    return NULL;
}

static void *storm(void *argument) {
    for (long turn = (long)(size_t)argument; !atomic_load(&ended); turn++) {
        allotment_drained took = {0};
        if (turn % 16 == 5)
            malloc_trim(0);
        else if (turn % 4 == 1)
            allotment_drain_idle(&took);
        else
            allotment_drain(turn % 8 == 2 ? (int)(turn % 5) : -1, turn % 4 == 3 ? ALLOTMENT_DRAIN_GENTLE : ALLOTMENT_DRAIN_EXPEDITED, &took);
        atomic_fetch_add(&drains, 1);
        atomic_fetch_add(&drained, (long)took.objects);
    }
    return NULL;
}

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 4;
    rounds = count > 2 ? atoi(words[2]) : 20000;
    forks = count > 3 ? atoi(words[3]) : 0;
    int drainers = count > 4 && allotment_drain ? atoi(words[4]) : 0;
    signal(SIGTERM, stop);
    pthread_t all[256], others[16];
    for (int at = 0; at < drainers && at < 16; at++)
        pthread_create(&others[at], NULL, storm, (void *)(size_t)at);
    for (int at = 0; at < threads && at < 256; at++)
        pthread_create(&all[at], NULL, work, (void *)(size_t)at);
    for (int at = 0; at < threads && at < 256; at++)
        pthread_join(all[at], NULL);
    stop(0);
    for (int at = 0; at < drainers && at < 16; at++)
        pthread_join(others[at], NULL);
    for (int at = 0; at < SLOTS; at++)
        if (shared[at]) {
            check(shared[at]);
            free(shared[at]);
        }
    /* A storm that takes nothing tries nothing. */
    if (count > 4 && drained == 0)
        bad = 1;
    printf("stress: %s", bad ? "BAD" : "ok");
    if (count > 4)
        printf(", %ld drains took %ld objects", drains, drained);
    putchar('\n');
    return bad != 0;
}
