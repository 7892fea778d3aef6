// about: a child that a raw call forks while another thread is inside the heap may never come in: who would wait for that waited for ever
#include "../c/check.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Those that go round: what a thread locks under glibc as it starts is behind it. */
static atomic_int going;

/* Under glibc these hold no lock of malloc: blocks this long are mappings of their own. */
static void *inside(void *none)
{
    char *block = malloc(40 << 20);
    for (size_t round = 0;; round++) {
        CHECK((block = realloc(block, (40 + round % 2 * 40) << 20)));
        going += round == 1;
    }
    return none;
}

static void *thread(void *none)
{
    free(malloc(1000));
    return none;
}

static void child(void)
{
    char *block = malloc(1000);
    CHECK(block && malloc_usable_size(block) >= 1000);
    malloc_trim(0);
    malloc_stats();
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    CHECK(mallinfo2().ordblks);
    FILE *sink = fopen("/dev/null", "w");
    CHECK(sink && !malloc_info(0, sink) && !fclose(sink));
    CHECK(!unshare(CLONE_FS));
    pthread_t other;
    CHECK(!pthread_create(&other, NULL, thread, NULL) && !pthread_join(other, NULL));
    pid_t grandchild = vfork();
    if (!grandchild)
        _exit(0);
    int status;
    CHECK(waitpid(grandchild, &status, 0) == grandchild && !status);
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    free(block);
    malloc_trim(0);
}

int main(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    pthread_t threads[3];
    for (int at = 0; at < 3; at++)
        CHECK(!pthread_create(&threads[at], NULL, inside, NULL));
    while (going < 3)
        usleep(1000);
    for (int at = 0; at < 40; at++) {
        pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        CHECK(pid >= 0);
        if (!pid) {
            alarm(15);
            close(2);
            child();
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && !status, "child %d: %#x", at, status);
    }
    say("ok\n");
    _exit(0);
}
