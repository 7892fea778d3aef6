// about: a handler that interrupts malloc_trim, malloc and free does vfork; the closing of the sets waited for the thread itself
#include "../c/check.h"
#include <malloc.h>
#include <sys/time.h>
#include <sys/wait.h>

/* Again after the handler's end, so that the program gets on however slow the machine is. */
static void alarm_in(long microseconds)
{
    struct itimerval once = {{0, 0}, {0, microseconds}};
    setitimer(ITIMER_REAL, &once, NULL);
}

static void handler(int signal)
{
    int kept = errno;
    pid_t child = vfork();
    if (!child)
        _exit(0);
    waitpid(child, NULL, 0);
    alarm_in(200);
    errno = kept;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    alarm_in(200);
    Random random = {1};
    for (double end = now() + 0.7; now() < end;) {
        for (int i = 0; i < 200; i++)
            free(malloc(1 + next(&random) % 60000));
        malloc_trim(0);
    }
    puts("ok");
}
