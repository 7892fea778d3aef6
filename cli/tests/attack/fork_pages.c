// about: a child of a small program that forks wrote 21 pages before it did anything (8 under glibc): each is a copy, and a fault
#include "../c/check.h"
#include <sys/wait.h>

/* What a process has written since it is by itself, in KiB, without an allocation. */
static long written(void)
{
    char text[4096] = "";
    int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0);
    close(file);
    const char *line = strstr(text, "Private_Dirty:");
    CHECK(line);
    return atol(line + strlen("Private_Dirty:"));
}

int main(void)
{
    if (access("/proc/self/smaps_rollup", R_OK)) {
        puts("skipped: no smaps_rollup here");
        return SKIPPED;
    }
    for (int at = 0; at < 1000; at++)
        CHECK(memset(malloc(16 + at * 7 % 2000), 1, 16));
    for (int time = 0; time < 3; time++) {
        pid_t child = fork();
        if (!child) {
            long kib = written();
            /* (Who publishes has a board of his own to write.) */
            CHECK(kib <= (getenv("ALLOTMENT_CONF") ? 100 : 64), "%ld KiB", kib);
            _exit(0);
        }
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && !status, "%#x", status);
    }
    return 0;
}
