// about: all addresses below 16 TiB are taken before the first block, and given back later
// args: all
// args: most
#include "../c/check.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* What is mapped already is left alone. */
static void each(size_t from, size_t bytes, int take)
{
    if (!take) {
        munmap((void *)from, bytes);
        return;
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    if (mmap((void *)from, bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED && bytes > 1 << 20) {
        each(from, bytes / 2, take);
        each(from + bytes / 2, bytes / 2, take);
    }
}

static void from_the_start(int count, char **words, char **environment)
{
    (void)environment;
    if (count < 2)
        return;
    /* All; or but for the last two terabytes. */
    for (int half = 28; half < 43; half++)
        each((size_t)1 << half, (size_t)1 << half, 1);
    each((size_t)8 << 40, (size_t)(strcmp(words[1], "all") ? 6 : 8) << 40, 1);
}
__attribute__((section(".preinit_array"), used)) static void (*first)(int, char **, char **) = from_the_start;

static void *load(void *none)
{
    static _Thread_local Held held;
    churn(&held, 20000);
    churn_end(&held);
    return none;
}

static void rounds(void)
{
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&thread[i], NULL, load, NULL));
    load(NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    pid_t child = fork();
    if (!child) {
        load(NULL);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("status %#x\n", status);
}

int main(void)
{
    rounds();
    /* Nobody but the program has anything where nothing was free. (Ours would be gone.) */
    each((size_t)9 << 40, (size_t)1 << 40, 0);
    rounds();
}
