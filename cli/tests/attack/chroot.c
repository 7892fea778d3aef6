// about: a server that goes into an empty root, drops its rights and closes its files; nothing of /proc, /sys and /dev is there
// root
#include "../c/check.h"
#include <grp.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void *load(void *none)
{
    static _Thread_local Held held;
    churn(&held, 5000);
    churn_end(&held);
    return none;
}

int main(void)
{
    free(malloc(100));
    char root[] = "emptyXXXXXX";
    CHECK(mkdtemp(root) && !chmod(root, 0755));
    CHECK(!chroot(root) && !chdir("/"));
    CHECK(!setgroups(0, NULL) && !setgid(65534) && !setuid(65534));
    for (int i = 3; i < 1000; i++)
        close(i);
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&thread[i], NULL, load, NULL));
    free(memset(malloc(80 << 20), 1, 80 << 20));
    malloc_trim(0);
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (!child) {
            load(NULL);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && !status);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    puts("ok");
}
