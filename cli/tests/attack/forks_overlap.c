// about: where forks overlapped without end, what was freed beside them was not used again beside the next, and who waited for a gap got none: memory ran out
// args: 12 400 40000 none
// args: 40 20000 1000 34M
// alone
#include "../c/check.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define WORKERS 2
#define ROUNDS 1000000

static atomic_int begun, stop;
static atomic_long refused;
static int blocks, most;
static double end;

/* What it has at a time is bounded: 16 or 20 MB in both. */
static void *works(void *number)
{
    Random random = {(uintptr_t)number};
    char **held;
    while (!(held = calloc(blocks, sizeof *held)))
        ;
    for (long round = 0; round < ROUNDS && now() < end; round += begun) {
        char **at = &held[next(&random) % blocks];
        size_t bytes = 16 + next(&random) % most;
        char *block = NULL;
        if (next(&random) % 16)
            free(*at), *at = NULL;
        block = realloc(*at, bytes);
        if (block)
            *at = memset(block, round, bytes);
        else {
            refused++;
            usleep(1000);
        }
    }
    for (int at = 0; at < blocks; at++)
        free(held[at]);
    free(held);
    return NULL;
}

static void *forks(void *unused)
{
    while (!stop) {
        pid_t child = fork();
        if (!child)
            _exit(0);
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    char conf[32] = "hard_limit=";
    if (!getenv("AGAIN")) {
        setenv("ALLOTMENT_CONF", strcat(conf, argv[4]), 1);
        setenv("AGAIN", "", 1);
        execv("/proc/self/exe", argv);
        return 1;
    }
    int forkers = atoi(argv[1]);
    blocks = atoi(argv[2]);
    most = atoi(argv[3]);
    end = now() + 4;
    pthread_t worker[WORKERS], forker[64];
    for (uintptr_t at = 0; at < WORKERS; at++)
        CHECK(!pthread_create(&worker[at], NULL, works, (void *)(at + 1)));
    usleep(200000);
    for (int at = 0; at < forkers; at++)
        CHECK(!pthread_create(&forker[at], NULL, forks, NULL));
    begun = 1;
    for (int at = 0; at < WORKERS; at++)
        CHECK(!pthread_join(worker[at], NULL));
    stop = 1;
    for (int at = 0; at < forkers; at++)
        CHECK(!pthread_join(forker[at], NULL));
    struct rusage usage;
    CHECK(!getrusage(RUSAGE_SELF, &usage) && usage.ru_maxrss < 80 << 10, "%ld KiB", usage.ru_maxrss);
    CHECK(refused < 20, "refused %ld times", refused);
    say("ok\n");
    return 0;
}
