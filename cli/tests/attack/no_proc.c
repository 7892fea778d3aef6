// about: a program that cannot see /proc keeps no memory for ever, and ends when its only thread leaves
// root
#include "../c/check.h"
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

int main(void)
{
    char name[] = "/tmp/empty-XXXXXX";
    int status;
    CHECK(mkdtemp(name));
    pid_t child = fork();
    if (!child) {
        char text[64] = "";
        int statm = open("/proc/self/statm", O_RDONLY);
        CHECK(statm >= 0 && !chroot(name) && !chdir("/"));
        for (int round = 0; round < 3; round++) {
            free(memset(malloc(200 << 20), 1, 200 << 20));
            usleep(200000);
        }
        for (int i = 0; i < 30; i++) {
            for (int at = 0; at < 1000; at++)
                free(malloc(at * 10));
            free(malloc(100000));
            usleep(50000);
        }
        CHECK(pread(statm, text, sizeof text - 1, 0) > 0);
        long total = 0, resident = 0;
        CHECK(sscanf(text, "%ld %ld", &total, &resident) == 2 && resident < 10240, "%ld pages", resident);
        syscall(SYS_exit, 7);
    }
    CHECK(waitpid(child, &status, 0) == child && !rmdir(name));
    printf("status %#x\n", status);
}
