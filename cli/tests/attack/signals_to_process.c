// about: a signal that the program's threads block stays pending: no thread of ours takes it
#include "../c/check.h"
#include <pthread.h>
#include <sys/syscall.h>

static volatile sig_atomic_t taken;
static void handler(int signal) { taken++; }

int main(void)
{
    sigset_t mask, pending;
    free(memset(malloc(40 << 20), 1, 40 << 20));
    for (int i = 0; i < 1000; i++)
        memset(malloc(50000), 1, 50000);
    for (int number = 1; number < 65; number++) {
        if (number == SIGKILL || number == SIGSTOP || number == 32 || number == 33)
            continue;
        struct sigaction action = {.sa_handler = handler};
        CHECK(!sigaction(number, &action, NULL));
        sigemptyset(&mask);
        sigaddset(&mask, number);
        CHECK(!sigprocmask(SIG_BLOCK, &mask, NULL));
        CHECK(!kill(getpid(), number));
        usleep(1000);
        sigpending(&pending);
        struct timespec none = {0, 0};
        if (taken || !sigismember(&pending, number) || sigtimedwait(&mask, NULL, &none) != number)
            printf("%d was taken by another\n", number);
        taken = 0;
    }
    puts("ok");
}
