// about: memory that was freed and is taken again at once went back to the system each time: a buffer of 18 MiB where no keeper may be started
// about: (a thousand faults a time, 90 times as slow as glibc), a queue of 20 MiB whose blocks change their size
#include "../c/check.h"
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { PAGE = 4096, MIB = 1 << 20, MANY = 1 << 16 };

static long faults(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
}

static void touch(char *block, size_t size) {
    for (size_t at = 0; at < size; at += PAGE)
        block[at] = 1;
}

static void buffer(void) {
    for (int round = 0; round < 600; round++) {
        char *block = malloc(18 * MIB);
        touch(block, 18 * MIB);
        free(block);
    }
}

static void queue(void) {
    static char *blocks[MANY];
    static size_t sizes[MANY];
    unsigned first = 0, last = 0;
    size_t held = 0;
    unsigned long random = 12345;
    for (int round = 0; round < 1500; round++) {
        random = random * 6364136223846793005ul + 1442695040888963407ul;
        size_t size = 20000 + (random >> 33) % 80000;
        for (size_t put = 0; put < 20 * MIB; put += size) {
            char *block = malloc(size);
            touch(block, size);
            blocks[last % MANY] = block;
            sizes[last++ % MANY] = size;
            for (held += size; held > 20 * MIB; held -= sizes[first++ % MANY])
                free(blocks[first % MANY]);
        }
    }
    while (first < last)
        free(blocks[first++ % MANY]);
}

/// In a child: what it uses at most, `most` MiB, may be faulted in eight times a second or so, however slow the machine is.
static void often(const char *what, void work(void), long most, int alone) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (alone && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
            puts("prctl");
        time_t begin = time(NULL);
        work();
        long may = most * (MIB / PAGE) * 8 * (time(NULL) - begin + 3);
        if (faults() > may)
            printf("%s: %ld faults of %ld\n", what, faults(), may);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(void) {
    often("buffer", buffer, 18, 1);
    often("queue", queue, 25, 0);
    puts("done");
    return 0;
}
