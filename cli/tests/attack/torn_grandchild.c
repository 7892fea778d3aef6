// about: the child of a torn child (forked by a raw call while another thread was inside the heap) was given what an older fork's copy of the sets held
// conf: publish=on,idle_seconds=0
#include "../c/check.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { BLOCKS = 2000 };
static uintptr_t *block[BLOCKS];
static Random chance = {7};

/* In the heap most of the time: many blocks of one size come and go together. (Under glibc each has an arena of its own.) */
static void *inside(void *none)
{
    static _Thread_local void *many[4000];
    for (size_t bytes = 16;; bytes = bytes % 2000 + 16) {
        for (int at = 0; at < 4000; at++)
            CHECK((many[at] = malloc(bytes)));
        for (int at = 0; at < 4000; at++)
            free(many[at]);
    }
    return none;
}

static void replace(int operations)
{
    for (int at = 0; at < operations; at++) {
        uint64_t dice = next(&chance);
        uintptr_t **one = &block[(dice >> 16) % BLOCKS];
        if (*one) {
            CHECK(**one == (uintptr_t)*one, "%p is somebody else's, too", (void *)*one);
            free(*one);
            *one = NULL;
        } else {
            size_t bytes = 16 + dice % 600;
            CHECK((*one = malloc(bytes)) && !((uintptr_t)*one & 15), "%p for %zu bytes", (void *)*one, bytes);
            **one = (uintptr_t)*one;
        }
    }
}

static void reap(pid_t child, const char *who)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && !status, "%s: %#x", who, status);
}

int main(void)
{
    pthread_t threads[3];
    for (int at = 0; at < 3; at++)
        CHECK(!pthread_create(&threads[at], NULL, inside, NULL));
    for (int at = 0; at < 200; at++) {
        replace(3000);
        /* What is copied for this one is old when the next is made. */
        pid_t pid = fork();
        if (!pid)
            _exit(0);
        reap(pid, "child");
        replace(3000);
        pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (!pid) {
            alarm(15);
            replace(100);
            pid = _Fork(); /* (fork takes locks under glibc that nobody gives back.) */
            if (!pid) {
                replace(6000);
                _exit(0);
            }
            reap(pid, "grandchild");
            _exit(0);
        }
        reap(pid, "raw child");
    }
    say("ok\n");
    _exit(0);
}
