/* A program that others look into. It holds what it says, has a keeper, says `ready PID`, and then does what
 * lines on standard input say, with a line for each. It holds 500 objects of 100 bytes of 1,000 and an area of 10 MiB;
 * 9 MiB are lazily freed (no CPU keeps so long a block).
 *
 *   cache        50,000 objects of 200 bytes allocated and freed: CPUs cache some
 *   busy N       N threads allocate and free for ever
 *   fork         a child that holds 3 MiB more and stays; says its id
 *   exec         becomes `sleep` without any environment
 *   end          ends */
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>

#define MIB ((size_t)1 << 20)

static void *small[1000], *many[50000];
static unsigned char *kept;

static void free_lazily(void)
{
    unsigned char *lazy = malloc(9 * MIB);
    CHECK(lazy);
    memset(lazy, 2, 9 * MIB);
    free(lazy);
}

/* Whether a thread of ours is the keeper. */
static bool is_kept(void)
{
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    bool found = false;
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        int file = open(path, O_RDONLY);
        if (file >= 0 && read(file, name, sizeof name - 1) > 0)
            found |= !strcmp(name, "allotment\n");
        if (file >= 0)
            close(file);
    }
    closedir(tasks);
    return found;
}

/* Allocates beyond the caches until there is a keeper. */
static void wait_for_keeper(void)
{
    static void *held[200];
    size_t count = 0;
    for (int at = 0; at < 10000 && !is_kept(); at++) {
        if (count < sizeof held / sizeof *held)
            CHECK(held[count++] = malloc(30000));
        usleep(1000);
    }
    while (count > 0)
        free(held[--count]);
}

static void *churn_for_ever(void *seed)
{
    void *held[64] = {0};
    Random random = {.state = (uintptr_t)seed};
    for (;;) {
        size_t at = next(&random) % 64;
        free(held[at]);
        held[at] = malloc(next(&random) % 50 ? some_size(&random) % 4096 + 1 : 100000);
    }
    return NULL;
}

static void answer(const char *text)
{
    say(text);
    say("\n");
}

static void answer_id(const char *word, long id)
{
    char line[64];
    snprintf(line, sizeof line, "%s %ld", word, id);
    answer(line);
}

static bool next_line(char *into, size_t room)
{
    size_t at = 0;
    for (; at + 1 < room && read(0, into + at, 1) == 1; at++)
        if (into[at] == '\n') {
            into[at] = 0;
            return true;
        }
    return false;
}

int main(void)
{
    for (int at = 0; at < 1000; at++)
        CHECK(small[at] = malloc(100));
    for (int at = 0; at < 500; at++)
        free(small[at]);
    CHECK(kept = malloc(10 * MIB));
    memset(kept, 1, 10 * MIB);
    wait_for_keeper();
    free_lazily();
    answer_id("ready", getpid());
    char line[64];
    while (next_line(line, sizeof line) && strcmp(line, "end")) {
        if (!strcmp(line, "cache")) {
            for (int at = 0; at < 50000; at++)
                CHECK(many[at] = malloc(200));
            for (int at = 0; at < 50000; at++)
                free(many[at]);
        } else if (!strncmp(line, "busy ", 5)) {
            for (int at = atoi(line + 5); at > 0; at--) {
                pthread_t thread;
                CHECK(!pthread_create(&thread, NULL, churn_for_ever, (void *)(uintptr_t)(at * 77)));
            }
        } else if (!strcmp(line, "fork")) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                CHECK(memset(malloc(3 * MIB), 3, 3 * MIB));
                wait_for_keeper();
                answer_id("child", getpid());
                for (;;)
                    pause();
            }
            continue;
        } else if (!strcmp(line, "exec")) {
            char *arguments[] = {"sleep", "1000", NULL}, *environment[] = {NULL};
            answer("done");
            execve("/bin/sleep", arguments, environment);
            return 1;
        } else {
            return 2;
        }
        answer("done");
    }
    return 0;
}
