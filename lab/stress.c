/* Threads that allocate, fill, check, resize and free, and pass blocks to each other; a fork now and then.
 * usage: stress THREADS ROUNDS FORKS. Says "stress: ok" and ends with 0, or says what was wrong and ends with 1. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 512 };
struct block {
    size_t size;
    unsigned char seed;
    unsigned char bytes[];
};
static _Atomic(struct block *) shared[SLOTS];
static atomic_int bad;
static int rounds, forks;

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
    for (int round = 0; round < rounds; round++) {
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

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 4;
    rounds = count > 2 ? atoi(words[2]) : 20000;
    forks = count > 3 ? atoi(words[3]) : 0;
    pthread_t all[256];
    for (int at = 0; at < threads && at < 256; at++)
        pthread_create(&all[at], NULL, work, (void *)(size_t)at);
    for (int at = 0; at < threads && at < 256; at++)
        pthread_join(all[at], NULL);
    for (int at = 0; at < SLOTS; at++)
        if (shared[at]) {
            check(shared[at]);
            free(shared[at]);
        }
    puts(bad ? "stress: BAD" : "stress: ok");
    return bad != 0;
}
