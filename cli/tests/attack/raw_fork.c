// about: children by _Fork, by the raw system calls fork and clone (no handler of ours runs): they and the parent go on, grandchildren too
// args: _Fork
// args: clone
// args: idle fork
#include "../c/check.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static Held held;
static char *large;
static atomic_bool going;

static void *idle(void *none)
{
    free(malloc(1000));
    going = true;
    pause();
    return none;
}

static pid_t forks(const char *way)
{
    if (!strcmp(way, "_Fork"))
        return _Fork();
    if (!strcmp(way, "fork"))
        return syscall(SYS_fork);
    return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static void children(const char *way, int depth)
{
    for (int i = 0; i < 3 - depth; i++) {
        churn(&held, 1000);
        pid_t child = forks(way);
        CHECK(child >= 0);
        if (!child) {
            churn(&held, 1000);
            free(large);
            large = depth ? NULL : memset(malloc(40 << 20), 1, 40 << 20);
            if (depth < 2)
                children(way, depth + 1);
            churn_end(&held);
            _exit(0);
        }
        churn(&held, 1000);
        int status;
        CHECK(waitpid(child, &status, 0) == child && !status, "status %#x", status);
    }
}

int main(int argc, char **argv)
{
    large = malloc(40 << 20);
    memset(large, 1, 40 << 20);
    if (argc > 2) {
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, idle, NULL));
        while (!going)
            usleep(1000);
    }
    children(argv[argc - 1], 0);
    churn_end(&held);
    say("ok\n");
    _exit(0);
}
