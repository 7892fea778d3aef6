// about: a program of one thread is told that it forks beside threads (by Python from 3.12 on, which counts them behind each fork): ours were among them
// args: fork
// args: _Fork
// args: joined
// args: often
// alone
#include "../c/check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

/* A number that /proc/self/FILE has behind the last `)`, counted from 0. */
static long number(const char *file, int at)
{
    char text[1024];
    int from = open(file, O_RDONLY);
    CHECK(from >= 0);
    ssize_t length = read(from, text, sizeof text - 1);
    CHECK(length > 0);
    close(from);
    text[length] = 0;
    char *word = strrchr(text, ')') ? strrchr(text, ')') + 2 : text;
    while (at--)
        word = strchr(word, ' ') + 1;
    return atol(word);
}
static long threads(void) { return number("/proc/self/stat", 17); }
static long resident_mib(void) { return number("/proc/self/statm", 1) * sysconf(_SC_PAGESIZE) >> 20; }

static int way, beside;

/* Parent, child and grandchild count. */
static void fork_once(int depth)
{
    pid_t child = way ? _Fork() : fork();
    CHECK(child >= 0);
    long count = threads();
    if (child == 0) {
        if (count != 1)
            _exit(9);
        if (depth > 0) {
            void *block = memset(malloc(40 << 20), 1, 40 << 20);
            beside = 0;
            fork_once(depth - 1);
            free(block);
        }
        _exit(depth > 0 ? beside : 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) < 2, "status %d", status);
    beside += (count > 1) + WEXITSTATUS(status);
}

static void *blocks[60000];

static void *nothing(void *none) { return none; }

int main(int argc, char **argv)
{
    enum { FEW = 15000, SIZE = 5000, ROUNDS = 4 };
    way = !strcmp(argv[1], "_Fork");
    if (!strcmp(argv[1], "joined")) {
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, nothing, NULL) && !pthread_join(thread, NULL));
    }
    if (!strcmp(argv[1], "often")) {
        /* Too often for a thread of ours to be there at all; what is freed goes back all the same. */
        for (int i = 0; i < 60000; i++)
            blocks[i] = memset(malloc(SIZE), 1, SIZE);
        for (int i = 0; i < 15; i++) {
            fork_once(0);
            usleep(20000);
        }
        for (int i = 0; i < 60000; i++)
            free(blocks[i]);
        for (int i = 0; i < 240 && resident_mib() > 100; i++) {
            fork_once(0);
            usleep(50000);
        }
        CHECK(resident_mib() <= 100, "%ld MiB", resident_mib());
    } else {
        for (int i = 0; i < FEW; i++)
            blocks[i] = memset(malloc(SIZE), 1, SIZE);
        for (int round = 0; round < ROUNDS; round++) {
            fork_once(round % 4 == 3);
            /* Time for one, and a reason; now and then much to do at the next fork. */
            usleep(150000);
            for (int i = 0; i < 50; i++)
                free(memset(malloc(30000 + 4000 * i), 1, 30000));
            free(memset(malloc(round % 3 * (100 << 20) + 1), 1, round % 3 * (100 << 20) + 1));
            usleep(10000);
        }
    }
    /* (Where others have the CPU for a tenth of a second, a fork waits no longer.) */
    if (beside > 2)
        printf("%d forks beside threads\n", beside);
    puts("ok");
}
