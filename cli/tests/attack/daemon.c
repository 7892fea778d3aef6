// about: a daemon ends with its last thread, and its keeper with it
// args: 100
// args: 1
#include "../c/check.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void *last(void *mib)
{
    size_t size = (size_t)mib << 20;
    free(memset(malloc(size), 1, size));
    for (int i = 0; i < 1000; i++)
        memset(malloc(40000), 1, 40000);
    usleep(600000);
    return NULL;
}

int main(int argc, char **argv)
{
    int status, ends[2];
    pid_t daemon_id;
    CHECK(!pipe(ends));
    CHECK(!prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    memset(malloc(60 << 20), 1, 60 << 20);
    pid_t child = fork();
    if (!child) {
        CHECK(!daemon(1, 1));
        daemon_id = getpid();
        CHECK(write(ends[1], &daemon_id, sizeof daemon_id) == sizeof daemon_id);
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, last, (void *)atol(argv[1])));
        syscall(SYS_exit, 3);
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK(read(ends[0], &daemon_id, sizeof daemon_id) == sizeof daemon_id);
    pid_t ended = 0;
    for (int tenths = 0; tenths < 80 && !ended; tenths++) {
        CHECK((ended = waitpid(daemon_id, &status, WNOHANG)) >= 0);
        usleep(100000);
    }
    if (!ended)
        kill(daemon_id, SIGKILL);
    printf("%s, status %#x\n", ended ? "ended" : "still there", status);
}
