// about: credentials change again and again while threads of ours start, work and end
// conf: keeper_bytes=1M,async_free_threshold=1,max_active=3,idle_seconds=1
// root
#include "../c/check.h"
#include <dirent.h>
#include <grp.h>
#include <pthread.h>

static atomic_bool stop;

static void *load(void *seed)
{
    static _Thread_local Held held;
    held.random.state = (uintptr_t)seed;
    while (!stop) {
        churn(&held, 200);
        /* Larger than half a region: given back by workers. */
        char *giant = malloc((size_t)600 << 20);
        CHECK(giant);
        memset(giant, 1, 3 << 20);
        free(giant);
    }
    churn_end(&held);
    return NULL;
}

/* Threads of this process whose effective group is another. */
static int others(unsigned group)
{
    int found = 0;
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(threads));) {
        char path[300], line[300];
        unsigned real, effective;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        while (file && fgets(line, sizeof line, file))
            if (sscanf(line, "Gid: %u %u", &real, &effective) == 2)
                found += effective != group;
        if (file)
            fclose(file);
    }
    closedir(threads);
    return found;
}

int main(void)
{
    pthread_t thread[3];
    for (uintptr_t i = 0; i < 3; i++)
        CHECK(!pthread_create(&thread[i], NULL, load, (void *)(i + 1)));
    double end = now() + 1;
    for (unsigned round = 0; now() < end; round++) {
        CHECK(!setegid(round % 2 ? 1234 : 0));
        CHECK(!others(round % 2 ? 1234 : 0), "in round %u", round);
    }
    stop = true;
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_join(thread[i], NULL));
    puts("ok");
}
