// about: a fork beside a thread that asks for statistics left its child a lock that nobody holds, and the child waited for ever
// args: 30
// long: 100
#include "../c/check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_bool ends;

static void *asks(void *unused)
{
    while (!ends) {
        struct mallinfo2 now = mallinfo2();
        CHECK(now.arena >= now.uordblks);
    }
    return unused;
}

/* Blocks of every small size come and go, more than a few lists take. */
static void come_and_go(void)
{
    enum { COUNT = 1200 };
    static void *blocks[COUNT];
    for (size_t size = 16; size <= 2048; size *= 2) {
        for (int at = 0; at < COUNT; at++) {
            CHECK(blocks[at] = malloc(size));
            mark(blocks[at], size);
        }
        for (int at = 0; at < COUNT; at++) {
            CHECK(verify(blocks[at]) == size);
            free(blocks[at]);
        }
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    pthread_t thread[2];
    come_and_go();
    for (int at = 0; at < 2; at++)
        CHECK(!pthread_create(&thread[at], NULL, asks, NULL));
    for (int left = atoi(argv[1]); left > 0; left--) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            alarm(60);
            CHECK(mallinfo2().arena > 0);
            come_and_go();
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && !status, "status %#x", status);
    }
    ends = true;
    for (int at = 0; at < 2; at++)
        CHECK(!pthread_join(thread[at], NULL));
    say("ok\n");
    return 0;
}
