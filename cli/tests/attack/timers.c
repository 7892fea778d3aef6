// about: timers and messages whose threads the C library makes and ends by itself, beside forks
// flags: -lrt
#include "../c/check.h"
#include <aio.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

static atomic_int calls;

static void called(union sigval value)
{
    static _Thread_local Held held;
    churn(&held, 20);
    churn_end(&held);
    calls++;
}

int main(void)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = called};
    CHECK(!timer_create(CLOCK_MONOTONIC, &event, &timer));
    struct itimerspec every = {{0, 500000}, {0, 500000}}, off = {0};
    CHECK(!timer_settime(timer, 0, &every, NULL));
    int file = open("/proc/self/exe", O_RDONLY);
    static char bytes[16][4096];
    static Held held;
    for (int round = 0; round < 60; round++) {
        static struct aiocb request[16];
        for (int i = 0; i < 16; i++) {
            request[i] = (struct aiocb){.aio_fildes = file, .aio_buf = bytes[i], .aio_nbytes = 4096, .aio_sigevent = event};
            CHECK(!aio_read(&request[i]));
        }
        churn(&held, 100);
        pid_t child = round % 2 ? 0 : fork();
        if (round % 2 == 0 && !child)
            _exit(0);
        if (child)
            waitpid(child, NULL, 0);
        for (int i = 0; i < 16; i++) {
            const struct aiocb *one[] = {&request[i]};
            while (aio_error(&request[i]) == EINPROGRESS)
                aio_suspend(one, 1, NULL);
            CHECK(aio_return(&request[i]) == 4096);
        }
    }
    CHECK(!timer_settime(timer, 0, &off, NULL));
    CHECK(calls > 0);
    churn_end(&held);
    puts("ok");
}
