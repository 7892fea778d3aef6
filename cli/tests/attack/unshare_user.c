// about: a program of one thread may enter a user namespace of its own, whatever it has freed; a second thread of ours forbids it
// args: 1
// args: 50
#include "../c/check.h"

int main(int argc, char **argv)
{
    size_t size = (size_t)atol(argv[1]) << 20;
    free(memset(malloc(size), 1, size));
    for (int i = 0; i < 2000; i++)
        memset(malloc(50000), 1, 50000);
    usleep(20000);
    if (unshare(CLONE_NEWUSER)) {
        if (errno == EPERM || errno == ENOSPC) {
            puts("skipped: no user namespaces here");
            return SKIPPED;
        }
        perror("unshare");
        puts("refused");
    } else
        puts("ok");
}
