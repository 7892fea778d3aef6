// about: a process in which no thread can be made, or that may gain no privileges, kept what it freed for ever
// args: processes
// args: privileges
// alone
#include "../c/check.h"
#include <sys/prctl.h>
#include <sys/resource.h>

int main(int argc, char **argv)
{
    if (!strcmp(argv[1], "privileges"))
        CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    else {
        /* The limit is for users other than root. */
        struct rlimit none = {0, 0};
        CHECK(!setrlimit(RLIMIT_NPROC, &none));
        CHECK(geteuid() || !setuid(65534));
    }
    char *large = malloc(470 << 20);
    memset(large, 1, 470 << 20);
    free(large);
    /* A program that goes on in a small way. */
    for (int i = 0; i < 20 && memory_of(0).resident >> 20 > 40; i++) {
        free(malloc(100000));
        usleep(50000);
    }
    size_t left = memory_of(0).resident >> 20;
    puts(left > 40 ? "kept" : "given back");
    fprintf(stderr, "%zu MiB\n", left);
}
