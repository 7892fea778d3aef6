// about: no thread of ours keeps credentials that the program drops, by the C library's calls or by a system call
// args: calls
// args: raw
// args: threads
// root
#include "../c/check.h"
#include <dirent.h>
#include <grp.h>
#include <pthread.h>
#include <sys/syscall.h>

enum { NOBODY = 65534 };

/* Threads of this process that act, or could act, as somebody else. */
static int others(void)
{
    int found = 0;
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(threads));) {
        char path[300], line[300];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        while (file && fgets(line, sizeof line, file)) {
            int id[4], user = sscanf(line, "Uid: %d %d %d %d", id, id + 1, id + 2, id + 3) == 4;
            if (user || sscanf(line, "Gid: %d %d %d %d", id, id + 1, id + 2, id + 3) == 4)
                for (int i = 0; i < 4; i++)
                    found += id[i] != NOBODY;
        }
        if (file)
            fclose(file);
    }
    closedir(threads);
    return found;
}

static void *waits(void *none)
{
    pause();
    return none;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    bool raw = !strcmp(argv[1], "raw");
    for (int i = 0; !strcmp(argv[1], "threads") && i < 3; i++)
        CHECK(!pthread_create(&thread, NULL, waits, NULL));
    char *much = memset(malloc(100 << 20), 1, 100 << 20);
    usleep(100000);
    if (raw) {
        CHECK(!syscall(SYS_setgroups, 0, NULL) && !syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY));
        CHECK(!syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY));
        /* Nobody can have told: it is seen soon. */
        for (int tenths = 0; tenths < 50 && others(); tenths++)
            usleep(100000);
    } else {
        CHECK(!initgroups("nobody", NOBODY) && !setgroups(0, NULL) && !setgid(NOBODY) && !setuid(NOBODY));
    }
    CHECK(!others());
    CHECK(setuid(0) == -1 && errno == EPERM && seteuid(0) == -1 && setresuid(0, 0, 0) == -1 && setreuid(0, 0) == -1);
    CHECK(setgid(0) == -1 && errno == EPERM && setegid(0) == -1 && setresgid(0, 0, 0) == -1 && setregid(0, 0) == -1);
    /* There may be a new one now, as who the program is now. */
    free(much);
    for (int i = 0; i < 100; i++)
        memset(malloc(200000 + i * 5000), 1, 200000);
    usleep(100000);
    CHECK(!others());
    puts("ok");
}
