// about: a program of one thread that forked and then idled kept all that it had freed: the fork ends the thread that gives it back
// args: before 100
// args: before 500
// args: after 40
// args: child 40
// args: often 100
#include "../c/check.h"
#include <fcntl.h>
#include <sys/wait.h>

/* Far below what was freed, and no less than what a few CPUs may keep. */
enum { LEFT_MIB = 32, BLOCK = 1000000 };

static void burst(int blocks)
{
    static char *block[1000];
    for (int at = 0; at < blocks; at++)
        block[at] = memset(malloc(BLOCK), 1, BLOCK);
    for (int at = 0; at < blocks; at++)
        free(block[at]);
}

static void fork_one(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, NULL, 0) == child);
}

/* Idle, but for looks. */
static void idle(void)
{
    for (int at = 0; at < 60 && memory_of(0).resident >> 20 > LEFT_MIB; at++)
        usleep(100000);
    CHECK(memory_of(0).resident >> 20 <= LEFT_MIB, "%zu MiB", memory_of(0).resident >> 20);
}

int main(int argc, char **argv)
{
    int blocks = atoi(argv[2]);
    if (!strcmp(argv[1], "before")) {
        burst(blocks);
        fork_one();
    } else if (!strcmp(argv[1], "after")) {
        fork_one();
        burst(blocks);
    } else if (!strcmp(argv[1], "often")) {
        burst(blocks);
        for (int at = 0; at < 40; at++) {
            fork_one();
            usleep(50000);
        }
    } else {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child) {
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
            puts("ok");
            return 0;
        }
        burst(blocks);
    }
    idle();
    puts("ok");
}
