// about: a fork where no address is left: a process that publishes needs some for what its child begins with
// args: fork
// args: clone
// limit: -v 40000
#include "../c/check.h"
#include <sys/syscall.h>
#include <sys/wait.h>

enum { TORN = 7 };

static void *block[40000];

static int fill(size_t size)
{
    int count = 0;
    while (count < 40000 && (block[count] = malloc(size)))
        memset(block[count++], count, size);
    return count;
}

static void given_up(int count, size_t size)
{
    for (int i = 0; i < count; i++) {
        unsigned char *byte = block[i];
        CHECK(byte[0] == (unsigned char)(i + 1) && byte[size - 1] == byte[0], "%d", i);
        free(block[i]);
    }
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {300000, 20000, 1000};
    int torn = 0;
    bool raw = !strcmp(argv[1], "clone");
    for (int round = 0; round < 3; round++) {
        size_t size = sizes[round];
        int count = fill(size);
        CHECK(count > 10);
        for (int again = 0; again < 2; again++) {
            pid_t child = raw ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
            CHECK(child >= 0);
            if (!child) {
                given_up(count, size);
                /* (That a raw call makes while the keeper is inside has what is not the heap's alone: here that is nothing.) */
                int got = fill(size);
                if (raw && !got)
                    _exit(TORN);
                CHECK(got > count / 2);
                pid_t grandchild = raw ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
                int status = 0;
                CHECK(grandchild >= 0);
                if (grandchild)
                    CHECK(waitpid(grandchild, &status, 0) == grandchild && !status, "status %#x", status);
                for (int i = 0; i < 1000; i++)
                    free(malloc(i));
                _exit(0);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child && (!status || WEXITSTATUS(status) == TORN), "status %#x", status);
            CHECK(!status || ++torn < 4, "%d children are torn", torn);
        }
        given_up(count, size);
    }
    say("ok\n");
    return 0;
}
