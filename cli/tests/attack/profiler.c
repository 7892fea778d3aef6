// about: a profiler's signals take the stack from wherever an allocation was interrupted: every frame of ours must be walked through
// rare: a signal in a sequence is delivered at its abort stub, for which there is no unwind information: one stack in twenty
#include "../c/check.h"
#include <execinfo.h>
#include <malloc.h>
#include <sys/time.h>

static volatile sig_atomic_t taken, short_ones;
static void *outermost;

static void handler(int signal)
{
    void *frame[64];
    int kept = errno, count = backtrace(frame, 64);
    bool reached = false;
    for (int i = 0; i < count; i++)
        reached |= frame[i] == outermost;
    taken++;
    short_ones += !reached;
    errno = kept;
}

__attribute__((noinline)) static void works(void)
{
    static Held held;
    /* The caller's address is the same in every stack. */
    outermost = __builtin_return_address(0);
    while (taken < 120) {
        churn(&held, 200);
        for (int i = 0; i < 2000; i++)
            free(malloc(i));
        malloc_trim(0);
    }
    churn_end(&held);
}

int main(void)
{
    void *frame[4];
    backtrace(frame, 4); /* loads what it needs */
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_PROF, &every, NULL);
    works();
    signal(SIGPROF, SIG_IGN);
    fprintf(stderr, "%d of %d stacks end early\n", (int)short_ones, (int)taken);
    puts(short_ones > 2 ? "stacks end early" : "ok");
}
