// about: all addresses below 16 TiB are taken before the first block, and given back later
// args: all
// args: most
#include "../c/check.h"
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

static struct {
    size_t from, bytes;
} taken[4096];
static int count;

/* What is mapped already is left alone. */
static void take(size_t from, size_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    if (mmap((void *)from, bytes, PROT_NONE, flags, -1, 0) == (void *)from) {
        CHECK(count < 4096);
        taken[count].from = from;
        taken[count++].bytes = bytes;
    } else if (errno == EEXIST && bytes > 1 << 20) {
        take(from, bytes / 2);
        take(from + bytes / 2, bytes / 2);
    }
}

static void from_the_start(int words, char **word, char **environment)
{
    (void)environment;
    if (words < 2)
        return;
    /* All; or but for the last two terabytes. */
    for (int half = 28; half < 43; half++)
        take((size_t)1 << half, (size_t)1 << half);
    take((size_t)8 << 40, (size_t)(strcmp(word[1], "all") ? 6 : 8) << 40);
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
    /* Those from 4 TiB on. */
    for (int i = 0; i < count; i++)
        if (taken[i].from >> 42)
            munmap((void *)taken[i].from, taken[i].bytes);
    rounds();
}
