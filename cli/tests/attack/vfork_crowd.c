// about: more vforks at once than there were places, whose children wait for each other: the last waited for one to end
// flags: -pthread -D_GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 600 };
static _Atomic int alive, wrong;

static void *vforks(void *none) {
    pid_t child = vfork();
    if (!child) {
        alive++;
        while (alive < THREADS)
            usleep(1000);
        _exit(0);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status)
        wrong++;
    free(malloc(100));
    return none;
}

int main(void) {
    static pthread_t thread[THREADS];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (int at = 0; at < THREADS; at++)
        if (pthread_create(&thread[at], &small, vforks, 0))
            return 1;
    for (int at = 0; at < THREADS; at++)
        pthread_join(thread[at], 0);
    pid_t child = fork();
    if (!child)
        _exit(malloc(1000) ? 0 : 1);
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status)
        wrong++;
    puts(wrong ? "wrong" : "ok");
}
