// about: without /proc a thread of ours that cannot come back took the program's for dead, and left what its fork waits for
// root
// conf: async_free_threshold=1
#include "../c/check.h"
#include <sys/time.h>
#include <sys/wait.h>

#define LARGE ((size_t)700 << 20)

static volatile int hit;

static void handler(int signal)
{
    struct timespec rest = {3, 0};
    hit = 1;
    while (nanosleep(&rest, &rest))
        ;
}

static void forks(void)
{
    signal(SIGALRM, handler);
    for (int round = 0; round < 2; round++) {
        char *block = malloc(LARGE);
        CHECK(block);
        for (size_t at = 0; at < LARGE / 4; at += 4096)
            block[at] = 1;
        hit = 0;
        struct itimerval once = {{0, 0}, {0, 2000 + round * 3000}};
        free(block);
        setitimer(ITIMER_REAL, &once, NULL);
        while (!hit)
            free(calloc(1, 900000));
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child)
            _exit(0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && !status);
    }
}

int main(void)
{
    char name[] = "/tmp/empty-XXXXXX";
    int status;
    CHECK(mkdtemp(name));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        CHECK(!chroot(name) && !chdir("/"));
        forks();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && !rmdir(name) && !status, "status %#x", status);
    say("ok\n");
    return 0;
}
