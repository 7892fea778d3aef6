// about: what a program leaves, a directory, a name space, nothing of ours keeps busy
// root
#include "../c/check.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

static void work(void)
{
    for (int i = 0; i < 1000; i++)
        memset(malloc(65536), i, 65536);
    usleep(300000);
}

int main(void)
{
    char name[] = "/tmp/left-XXXXXX", path[64];
    int go[2], come[2], status;
    char byte;
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
        puts("ok");
        return 0;
    }
    CHECK(mkdtemp(name) && !mount("none", name, "tmpfs", 0, NULL) && !chdir(name));
    work();
    CHECK(!chdir("/") && !umount(name) && !rmdir(name));
    CHECK(!pipe(go) && !pipe(come));
    pid_t child = fork();
    if (!child) {
        close(go[1]);
        int there = unshare(CLONE_NEWUSER);
        CHECK(write(come[1], there ? "n" : "y", 1) == 1 && read(go[0], &byte, 1) >= 0);
        _exit(0);
    }
    CHECK(read(come[0], &byte, 1) == 1);
    snprintf(path, sizeof path, "/proc/%d/ns/user", child);
    if (byte == 'y') {
        work();
        int there = open(path, O_RDONLY | O_CLOEXEC);
        /* The kernel lets no process of several threads in. */
        CHECK(there >= 0 && !setns(there, CLONE_NEWUSER));
    }
    CHECK(write(go[1], "", 1) == 1 && waitpid(child, &status, 0) == child && !status);
    puts("ok");
}
