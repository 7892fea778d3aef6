// about: a handler ends the program's only thread inside malloc while our first thread reads what there is
// conf: keeper_bytes=1M
#include "../c/check.h"
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#define CHILDREN 120

static void handler(int signal)
{
    syscall(SYS_exit, 6);
}

static void child(unsigned number)
{
    static void *block[40000];
    unsigned random = number * 7919;
    signal(SIGALRM, handler);
    struct itimerval once = {{0, 0}, {0, 400 + number * 977 % 3100}};
    setitimer(ITIMER_REAL, &once, NULL);
    for (;;) {
        random = random * 1664525 + 1013904223;
        void **at = &block[(random >> 8) % 40000];
        free(*at);
        *at = malloc(1 + (random >> 4) % 3000);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        child(atoi(argv[1]));
    pid_t children[CHILDREN];
    for (int at = 0; at < CHILDREN; at++) {
        char number[20];
        snprintf(number, sizeof number, "%d", at + 1);
        children[at] = fork();
        CHECK(children[at] >= 0);
        if (!children[at]) {
            execl("/proc/self/exe", argv[0], number, NULL);
            _exit(127);
        }
    }
    for (int at = 0; at < CHILDREN; at++) {
        int status;
        CHECK(waitpid(children[at], &status, 0) == children[at]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 6, "%#x", status);
    }
    say("ok\n");
    return 0;
}
