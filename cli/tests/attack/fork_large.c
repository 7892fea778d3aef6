// about: large blocks that threads take and give up beside forks that never end leave no more resident than is in use, some free memory and caches
// args: 1
#include "../c/check.h"
#include <pthread.h>
#include <sys/wait.h>

enum { SLOTS = 128, LEAST = 64 << 10, MORE = 512 << 10 };

static struct {
    pthread_mutex_t lock;
    unsigned char *at;
    size_t bytes;
} slots[SLOTS];
static double end;

static void *takes(void *argument)
{
    Random random = {(uintptr_t)argument};
    while (now() < end) {
        uint64_t dice = next(&random);
        size_t bytes = LEAST + (dice >> 20) % MORE;
        unsigned char *block = malloc(bytes);
        CHECK(block);
        memset(block, (int)(bytes % 251), bytes);
        int slot = dice % SLOTS;
        pthread_mutex_lock(&slots[slot].lock);
        unsigned char *before = slots[slot].at;
        size_t had = slots[slot].bytes;
        slots[slot].at = block, slots[slot].bytes = bytes;
        pthread_mutex_unlock(&slots[slot].lock);
        for (size_t i = 0; i < had; i += 997)
            CHECK(before[i] == had % 251, "%zu of %zu", i, had);
        free(before);
    }
    return NULL;
}

static void *forks(void *argument)
{
    while (now() < end) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child)
            _exit(0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    return argument;
}

int main(int count, char **words)
{
    end = now() + (count > 1 ? atof(words[1]) : 2);
    for (int slot = 0; slot < SLOTS; slot++)
        pthread_mutex_init(&slots[slot].lock, NULL);
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, i < 2 ? forks : takes, (void *)(i + 1)));
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_join(threads[i], NULL));
    size_t live = 0;
    for (int slot = 0; slot < SLOTS; slot++)
        live += slots[slot].bytes;
    size_t resident = memory_of(0).resident;
    CHECK(resident < 2 * live + (48 << 20), "%zu MiB of %zu in use", resident >> 20, live >> 20);
    for (int slot = 0; slot < SLOTS; slot++)
        free(slots[slot].at);
    puts("ok");
    return 0;
}
