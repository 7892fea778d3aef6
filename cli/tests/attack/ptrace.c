// about: a child that is traced: stopped at each system call, stepped, and given signals in between
// args: syscall
// args: step
// args: signal
#include "../c/check.h"
#include <sys/ptrace.h>
#include <sys/wait.h>

static volatile sig_atomic_t signals;
static void handler(int signal) { signals++; }

int main(int argc, char **argv)
{
    bool step = !strcmp(argv[1], "step"), inject = !strcmp(argv[1], "signal");
    static Held held;
    churn(&held, 1000);
    pid_t child = fork();
    if (!child) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) {
            say("skipped: no ptrace\n");
            _exit(SKIPPED);
        }
        signal(SIGUSR1, handler);
        raise(SIGSTOP);
        churn(&held, step ? 60 : 3000);
        if (!step)
            free(memset(malloc(80 << 20), 1, 80 << 20));
        churn_end(&held);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    long stops = 0;
    for (; WIFSTOPPED(status); stops++) {
        /* Stepped for a while, then left alone. */
        int how = step && stops < 30000 ? PTRACE_SINGLESTEP : step ? PTRACE_CONT : PTRACE_SYSCALL;
        int given = inject && stops % 3 == 0 ? SIGUSR1 : 0;
        CHECK(!ptrace(how, child, 0, given));
        CHECK(waitpid(child, &status, 0) == child);
    }
    printf("status %#x\n", status);
}
