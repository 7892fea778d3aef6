// about: a handler ends the process in the middle of an allocation, in each way there is, beside other threads or alone
// args: exit 0
// args: exit 2
// args: quick_exit 0
// args: quick_exit 2
// args: _exit 2
// args: abort 2
// args: thread 0
#include "../c/check.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

static const char *way;

static void says(void) { say("handler of exit\n"); }
static void says_quick(void) { say("handler of quick_exit\n"); }

static void handler(int signal)
{
    if (!strcmp(way, "exit"))
        exit(4);
    if (!strcmp(way, "quick_exit"))
        quick_exit(5);
    if (!strcmp(way, "abort"))
        abort();
    if (!strcmp(way, "thread"))
        syscall(SYS_exit, 6);
    _exit(7);
}

static void *load(void *none)
{
    sigset_t mask;
    sigfillset(&mask);
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    static _Thread_local Held held;
    for (;;)
        churn(&held, 100);
}

int main(int argc, char **argv)
{
    static Held held;
    way = argv[1];
    atexit(says);
    at_quick_exit(says_quick);
    signal(SIGALRM, handler);
    for (int i = 0; i < 6; i++) {
        pid_t child = fork();
        if (!child) {
            pthread_t thread;
            for (int at = 0; at < atoi(argv[2]); at++)
                CHECK(!pthread_create(&thread, NULL, load, NULL));
            struct itimerval once = {{0, 0}, {0, 2000 + 2900 * i}};
            setitimer(ITIMER_REAL, &once, NULL);
            for (;;)
                churn(&held, 100);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        char text[64];
        snprintf(text, sizeof text, "status %#x\n", status);
        say(text);
    }
    _exit(0);
}
