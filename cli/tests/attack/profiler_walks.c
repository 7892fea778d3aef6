// about: a signal that met a sequence found the thread at code that unwinders knew nothing of: six in ten of a profiler's walks ended in malloc
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static volatile long whole, cut;
static void *caller;

static void walk(int signal)
{
    void *frames[64];
    (void)signal;
    int found = 0;
    for (int at = 0, frame_count = backtrace(frames, 64); at < frame_count; at++)
        found |= frames[at] == caller;
    if (found)
        whole++;
    else
        cut++;
}

__attribute__((noinline)) static void load(void)
{
    caller = __builtin_return_address(0);
    for (time_t end = time(NULL) + 2; time(NULL) < end;)
        for (int i = 0; i < 100000; i++) {
            char *block = malloc(64);
            *(volatile char *)block = 1;
            free(block);
        }
}

int main(void)
{
    void *first[4];
    backtrace(first, 4); /* (It loads a library.) */
    struct sigaction action = {.sa_handler = walk, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    load();
    setitimer(ITIMER_REAL, &never, NULL);
    /* One in twenty may meet what has a frame of its own. (Elsewhere than on x86-64 the walk ends there still.) */
#ifdef __x86_64__
    if (whole < 100 || cut * 20 > whole) {
        printf("whole %ld, cut short %ld\n", whole, cut);
        return 1;
    }
#endif
    puts("ok");
}
