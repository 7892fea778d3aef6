// about: blocks around the lengths of a CPU's classes of areas, in threads that free, grow and shrink each other's and fork, keep every byte
// args: 3000
#include "../c/check.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

enum { SLOTS = 64, THREADS = 4, FORKS = 5, PAGE = 4096 };

static struct {
    pthread_mutex_t lock;
    unsigned char *at;
    size_t bytes;
    uint64_t mark;
} slots[SLOTS];
static long rounds;

static void fill(unsigned char *block, size_t bytes, uint64_t mark)
{
    for (size_t i = 0; i < bytes; i += 509)
        block[i] = (unsigned char)(mark + i / 509);
    block[bytes - 1] = (unsigned char)mark;
}

/* The first `left` of the bytes that were filled. */
static void look(const unsigned char *block, size_t bytes, size_t left, uint64_t mark)
{
    for (size_t i = 0; i < left; i += 509)
        CHECK(i == bytes - 1 || block[i] == (unsigned char)(mark + i / 509), "%zu of %zu", i, bytes);
    CHECK(left < bytes || block[bytes - 1] == (unsigned char)mark);
}

static size_t near_class(uint64_t x)
{
    static const int pages[] = {8,  9,  10, 15,  16,  17,  18,  31,  32,  33,  34,  63,  64,
                                65, 66, 127, 128, 129, 130, 240, 241, 255, 256, 257, 258, 290};
    size_t bytes = (size_t)pages[x % 26] * PAGE, less[] = {0, 1, (x >> 16) % PAGE, 0};
    return bytes - less[(x >> 8) % 4] + ((x >> 8) % 4 == 3);
}

static unsigned char *a_block(uint64_t x, size_t bytes)
{
    unsigned char *block;
    switch (x >> 50 & 7) {
    case 0:
        block = calloc(1, bytes);
        for (size_t i = 0; block && i < bytes; i += 61)
            CHECK(!block[i], "%zu of %zu", i, bytes);
        CHECK(block && !block[bytes - 1]);
        return block;
    case 1:
        block = aligned_alloc((size_t)PAGE << (x >> 54 & 3), bytes);
        CHECK((uintptr_t)block % PAGE == 0);
        break;
    default:
        block = malloc(bytes);
    }
    CHECK(block && malloc_usable_size(block) >= bytes);
    return block;
}

static void *run(void *number)
{
    uint64_t x = (uintptr_t)number;
    for (long round = 0; round < rounds; round++) {
        x = mix(x + (uint64_t)round + 1);
        size_t which = (x >> 3) % SLOTS, bytes = near_class(x >> 20);
        pthread_mutex_lock(&slots[which].lock);
        unsigned char *block = slots[which].at;
        if (!block) {
            block = a_block(x, bytes);
            bytes = malloc_usable_size(block);
        } else {
            size_t had = slots[which].bytes;
            look(block, had, had, slots[which].mark);
            if ((x >> 40) % 3 == 0) {
                CHECK((block = realloc(block, bytes)));
                look(block, had, had < bytes ? had : bytes, slots[which].mark);
            } else {
                memset(block, 0xee, had);
                free(block);
                block = NULL;
            }
        }
        slots[which].at = block, slots[which].bytes = bytes, slots[which].mark = x;
        if (block)
            fill(block, bytes, x);
        pthread_mutex_unlock(&slots[which].lock);
        if (round % 64 == 0) {
            cpu_set_t cpu;
            CPU_ZERO(&cpu);
            CPU_SET(x >> 5 & 1, &cpu);
            sched_setaffinity(0, sizeof cpu, &cpu);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    CHECK(argc == 2);
    rounds = atol(argv[1]);
    for (int i = 0; i < SLOTS; i++)
        pthread_mutex_init(&slots[i].lock, NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, run, (void *)i));
    for (int i = 0; i < FORKS; i++) {
        usleep(20000);
        pid_t child = fork();
        for (uint64_t round = 0; !child && round < 200; round++) {
            size_t bytes = near_class(mix(round));
            unsigned char *block = a_block(mix(round), bytes);
            fill(block, bytes, round);
            look(block, bytes, bytes, round);
            free(block);
        }
        if (!child)
            _exit(0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "%d", status);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SLOTS; i++)
        free(slots[i].at);
    puts("every byte is there");
}
