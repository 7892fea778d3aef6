// about: a handler forks in the middle of malloc, free, realloc or calloc of a process of one thread; parent and child go on with what they did
// args: fork
// args: _Fork
// args: syscall
#include "../c/check.h"
#include <malloc.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

static volatile sig_atomic_t in_child, failures, forks;
static int way;

/* Again after the handler's end, so that the program gets on however slow the machine is. */
static void alarm_in(long microseconds)
{
    struct itimerval once = {{0, 0}, {0, microseconds}};
    setitimer(ITIMER_REAL, &once, NULL);
}

static void handler(int signal)
{
    int kept = errno;
    pid_t child = way == 0 ? fork() : way == 1 ? _Fork() : syscall(SYS_fork);
    if (child == 0) {
        in_child = 1;
        errno = kept;
        return;
    }
    int status;
    waitpid(child, &status, 0);
    failures += status != 0;
    forks++;
    alarm_in(400);
    errno = kept;
}

int main(int argc, char **argv)
{
    way = !strcmp(argv[1], "fork") ? 0 : !strcmp(argv[1], "_Fork") ? 1 : 2;
    static Held held;
    /* What the keeper lives for. */
    free(memset(malloc(64 << 20), 1, 64 << 20));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    alarm_in(400);
    int rest = 60;
    for (double end = now() + 0.5; now() < end || in_child;) {
        churn(&held, 20);
        if (next(&held.random) % 64 == 0)
            malloc_trim(0);
        if (in_child && --rest == 0) {
            churn_end(&held);
            _exit(0);
        }
    }
    signal(SIGALRM, SIG_IGN);
    if (in_child) /* forked behind the loop */
        _exit(0);
    churn_end(&held);
    CHECK(forks > 0);
    printf("%d children failed\n", (int)failures);
}
