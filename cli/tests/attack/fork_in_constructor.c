// about: a library forks in its constructor, before handlers of ours are there, beside threads that allocate
// library
#include "../c/check.h"
#include <pthread.h>
#include <sys/wait.h>

#define BLOCKS 1000
#define FORKS 60

#ifdef LIB
static void *block[BLOCKS];

static void *load(void *seed)
{
    for (unsigned random = (uintptr_t)seed;;) {
        random = random * 1103515245 + 12345;
        free(malloc(random >> 8 & 0xffff));
    }
    return seed;
}

static void fill(void)
{
    for (int at = 0; at < BLOCKS; at++) {
        block[at] = malloc(at * 40);
        memset(block[at], at, at * 40);
    }
}

static void empty(void)
{
    for (int at = 0; at < BLOCKS; at++) {
        CHECK(!at || ((char *)block[at])[at * 40 - 1] == (char)at, "block %d", at);
        free(block[at]);
    }
}

__attribute__((constructor)) static void forks(void)
{
    pthread_t thread;
    for (uintptr_t at = 1; at < 4; at++)
        CHECK(!pthread_create(&thread, NULL, load, (void *)at));
    fill();
    for (int at = 0; at < FORKS; at++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            alarm(5);
            empty();
            fill();
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && !status, "fork %d: status %#x", at, status);
    }
    empty();
}

void nothing(void) {}
#else
void nothing(void);

int main(void)
{
    nothing();
    say("ok\n");
    _exit(0);
}
#endif
