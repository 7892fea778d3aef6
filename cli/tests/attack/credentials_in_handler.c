// about: a handler that changes the group waited a second for our thread, which waited for the malloc below: with a fast timer for ever
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

enum { BLOCKS = 20000, STEPS = 1000000 };

static char *block[BLOCKS];

static void handler(int signal)
{
    (void)signal;
    if (setgid(getgid()))
        _exit(2);
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval timer = {{0, 200}, {0, 200}};
    unsigned seed = 1;
    if (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &timer, NULL))
        return 2;
    for (int step = 0; step < STEPS; step++) {
        int at = (int)((unsigned)rand_r(&seed) % BLOCKS);
        size_t size = (size_t)rand_r(&seed) % (rand_r(&seed) % 50 ? 4000 : 300000);
        free(block[at]);
        block[at] = malloc(size + 1);
        block[at][0] = block[at][size] = 1;
    }
    puts("done");
    return 0;
}
