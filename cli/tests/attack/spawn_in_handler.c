// about: posix_spawn, and vfork with exec, in a handler that interrupts an allocation, of one thread among several
// args: 0
// args: 2
#include "../c/check.h"
#include <pthread.h>
#include <spawn.h>
#include <sys/time.h>
#include <sys/wait.h>

extern char **environ;
static volatile sig_atomic_t failures, calls;
static atomic_bool stop;

/* Again after the handler's end, so that the program gets on however slow the machine is. */
static void alarm_in(long microseconds)
{
    struct itimerval once = {{0, 0}, {0, microseconds}};
    setitimer(ITIMER_REAL, &once, NULL);
}

static void handler(int signal)
{
    int kept = errno, status = 1;
    char *words[] = {"true", NULL};
    pid_t child = -1;
    if (calls++ % 2)
        posix_spawn(&child, "/bin/true", NULL, NULL, words, environ);
    else {
        child = vfork();
        if (!child) {
            execv("/bin/true", words);
            _exit(127);
        }
    }
    failures += waitpid(child, &status, 0) != child || status;
    alarm_in(500);
    errno = kept;
}

static void *load(void *none)
{
    sigset_t mask;
    sigfillset(&mask);
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    static _Thread_local Held held;
    while (!stop)
        churn(&held, 100);
    churn_end(&held);
    return NULL;
}

int main(int argc, char **argv)
{
    static Held held;
    int threads = atoi(argv[1]);
    pthread_t thread[2];
    for (int i = 0; i < threads; i++)
        CHECK(!pthread_create(&thread[i], NULL, load, NULL));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    alarm_in(500);
    for (double end = now() + 0.4; now() < end;)
        churn(&held, 100);
    signal(SIGALRM, SIG_IGN);
    stop = true;
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    churn_end(&held);
    printf("%d failed\n", (int)failures);
}
