// about: a subreaper gets only those children that it knows of
// known: the reaper becomes a child of the subreaper
#include "../c/check.h"
#include <sys/prctl.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
    if (argc > 1) {
        memset(malloc(300 << 20), 1, 300 << 20);
        return 5;
    }
    CHECK(!prctl(PR_SET_CHILD_SUBREAPER, 1));
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (!child) {
            execl("/proc/self/exe", argv[0], "large", NULL);
            _exit(1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        printf("status %#x\n", status);
    }
    int strangers = 0;
    for (int i = 0; i < 20; i++) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            strangers++;
        usleep(20000);
    }
    printf("strangers: %d\n", strangers);
}
