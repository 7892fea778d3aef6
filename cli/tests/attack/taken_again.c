// about: memory that was freed and is taken again at once went back to the system each time: a buffer of 18 MiB where no keeper may be started
// about: (a thousand faults a time, 90 times as slow as glibc), a queue of 20 MiB whose blocks change their size
#include "../c/check.h"
#include <sys/prctl.h>
#include <sys/wait.h>

enum { PAGE = 4096, MIB = 1 << 20, MANY = 1 << 16 };

static void buffer(void)
{
    for (int round = 0; round < 600; round++) {
        char *block = malloc(18 * MIB);
        touch_pages(block, 18 * MIB);
        free(block);
    }
}

static void queue(void)
{
    static struct { char *block; size_t size; } queue[MANY];
    unsigned head = 0, tail = 0;
    size_t held = 0;
    Random random = {1};
    for (int round = 0; round < 1500; round++) {
        size_t size = 20000 + next(&random) % 80000;
        for (size_t put = 0; put < 20 * MIB; put += size) {
            char *block = malloc(size);
            touch_pages(block, size);
            queue[head % MANY].block = block, queue[head % MANY].size = size;
            head++, held += size;
            for (; held > 20 * MIB; tail++) {
                free(queue[tail % MANY].block);
                held -= queue[tail % MANY].size;
            }
        }
    }
    while (tail < head)
        free(queue[tail++ % MANY].block);
}

/* In a child: what it uses at most, `most` MiB, may be faulted in eight times a second or so, however slow the machine is. */
static void often(const char *what, void work(void), long most, bool alone)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(!alone || !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        double begin = now();
        work();
        long faults = page_faults(), may = most * (MIB / PAGE) * 8 * ((long)(now() - begin) + 3);
        CHECK(faults <= may, "%s: %ld faults of %ld", what, faults, may);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "%s: %x", what, (unsigned)status);
}

int main(void)
{
    often("buffer", buffer, 18, true);
    often("queue", queue, 25, false);
    say("done\n");
    return 0;
}
