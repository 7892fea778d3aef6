// about: a wrong ALLOTMENT_CONF ended a program by SIGPIPE, or hung it, where nobody reads its standard error
// args: run
// conf: foo=1
// own-errors
#include "../c/check.h"
#include <sys/wait.h>

int main(int argc, char **argv)
{
    if (!strcmp(argv[1], "end")) {
        free(malloc(100));
        return 0;
    }
    for (int full = 0; full < 2; full++) {
        int ends[2];
        CHECK(!pipe(ends));
        if (full) {
            CHECK(!fcntl(ends[1], F_SETFL, O_NONBLOCK));
            char some[4096] = {0};
            while (write(ends[1], some, sizeof some) > 0)
                ;
            CHECK(!fcntl(ends[1], F_SETFL, 0));
        } else {
            close(ends[0]);
        }
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            signal(SIGPIPE, SIG_DFL);
            alarm(5);
            dup2(ends[1], 2);
            execl("/proc/self/exe", argv[0], "end", NULL);
            _exit(3);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "full %d: status %#x", full, status);
        close(ends[1]);
    }
    puts("ok");
}
