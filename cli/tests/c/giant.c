/* Areas above half a GiB, which go back to the system in slices, by several threads: with what is in them, beside
 * forks and other threads, given back before `free` returns or after. ROUNDS (default 12) is how often. Passes on
 * plain glibc. Touches a page here and there only, so that it needs little memory. */
#include "check.h"
#include <dirent.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { PLACES = 64 };
static const size_t GIANT = (size_t)600 << 20;
static atomic_bool stop;

static int rounds(void)
{
    const char *text = getenv("ROUNDS");
    return text ? atoi(text) : 12;
}

/* A word at so many places, each another. */
static void stamp(uint64_t *at, size_t size, uint64_t seed)
{
    for (size_t place = 0; place < PLACES; place++)
        at[size / PLACES * place / 8] = mix(seed + place);
}

static void look(const uint64_t *at, size_t size, uint64_t seed)
{
    for (size_t place = 0; place < PLACES; place++)
        CHECK(at[size / PLACES * place / 8] == mix(seed + place), "at place %zu of %zu", place, size);
}

/* Makes the first bytes resident, so that there is something to give back. */
static void fill(char *at, size_t bytes)
{
    for (size_t byte = 0; byte < bytes; byte += 4096)
        at[byte + 8] = 1;
}

/* Threads of this process that have this name. */
static int named(const char *name)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        char path[300], text[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file)
            continue;
        if (fgets(text, sizeof text, file) && !strcmp(strtok(text, "\n"), name))
            count++;
        fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return count;
}

static void one(Random *random)
{
    size_t size = GIANT + (next(random) % 8 << 26);
    uint64_t seed = next(random);
    uint64_t *area = seed % 4 ? malloc(size) : calloc(1, size);
    CHECK(area, "%zu bytes", size);
    if (seed % 4 == 0)
        for (size_t place = 0; place < PLACES; place++)
            CHECK(area[size / PLACES * place / 8] == 0, "calloc at place %zu", place);
    fill((char *)area, seed % (64 << 20));
    stamp(area, size, seed);
    if (seed % 3 == 0) {
        size_t longer = size + ((size_t)100 << 20);
        area = realloc(area, longer);
        CHECK(area, "%zu bytes", longer);
        for (size_t place = 0; place < PLACES; place++)
            CHECK(area[size / PLACES * place / 8] == mix(seed + place), "moved, at place %zu", place);
        stamp(area, longer, seed);
        size = longer;
    }
    look(area, size, seed);
    free(area);
}

static void *churner(void *argument)
{
    Random random = { (uintptr_t)argument };
    Held *held = calloc(1, sizeof *held);
    held->random = random;
    while (!stop) {
        one(&random);
        churn(held, 200);
    }
    churn_end(held);
    free(held);
    return NULL;
}

static void contents(void)
{
    Random random = { 7 };
    for (int round = 0; round < 8 * rounds(); round++)
        one(&random);
}

static void threads(void)
{
    pthread_t thread[3];
    stop = false;
    for (uintptr_t at = 0; at < 3; at++)
        CHECK(!pthread_create(&thread[at], NULL, churner, (void *)(at + 1)));
    usleep(200000u * (unsigned)rounds());
    stop = true;
    for (int at = 0; at < 3; at++)
        pthread_join(thread[at], NULL);
}

/* Forks while areas are on their way to the system: child and parent find everything as it was. */
static void forks(void)
{
    pthread_t thread[2];
    Random random = { 11 };
    stop = false;
    for (uintptr_t at = 0; at < 2; at++)
        CHECK(!pthread_create(&thread[at], NULL, churner, (void *)(at + 21)));
    uint64_t *kept = malloc(GIANT);
    CHECK(kept);
    stamp(kept, GIANT, 5);
    for (int round = 0; round < 2 * rounds(); round++) {
        char *waits = malloc(GIANT);
        CHECK(waits);
        fill(waits, 96 << 20);
        free(waits);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            /* (It may have workers of its own at once: for what others were freeing when it was forked.) */
            look(kept, GIANT, 5);
            for (int at = 0; at < 3; at++)
                one(&random);
            free(kept);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "child: %#x", (unsigned)status);
        look(kept, GIANT, 5);
        one(&random);
    }
    stop = true;
    for (int at = 0; at < 2; at++)
        pthread_join(thread[at], NULL);
    look(kept, GIANT, 5);
    free(kept);
}

/* Memory falls: when free returns (SYNC set), else soon; the threads go away. */
static void falls(void)
{
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    size_t filled = 256 << 20, before = memory_of(0).resident;
    char *area = malloc(GIANT);
    CHECK(area);
    fill(area, filled);
    CHECK(memory_of(0).resident >= before + filled - (8 << 20));
    free(area);
    double end = now() + (getenv("SYNC") ? 0 : 20);
    while (memory_of(0).resident > before + (32 << 20)) {
        CHECK(now() < end, "%zu bytes are resident, %zu were", memory_of(0).resident, before);
        usleep(1000);
    }
    if (getenv("WORKERS"))
        CHECK(named("allotment/free") == atoi(getenv("WORKERS")), "%d workers", named("allotment/free"));
    end = now() + 20;
    while (named("allotment/free") > 0) {
        CHECK(now() < end, "workers stay");
        usleep(10000);
    }
}

int main(int argc, char **argv)
{
    static const Case cases[] = { { "falls", falls }, { "contents", contents }, { "threads", threads }, { "forks", forks } };
    return RUN_CASES(cases);
}
