// about: setuid reaches every thread of the process, whoever made it
// args: 0
// args: 3
// root
#include "../c/check.h"
#include <dirent.h>
#include <pthread.h>

static void *waits(void *none)
{
    free(malloc(100));
    pause();
    return none;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    for (int i = 0; i < atoi(argv[1]); i++)
        CHECK(!pthread_create(&thread, NULL, waits, NULL));
    free(memset(malloc(40 << 20), 1, 40 << 20));
    for (int i = 0; i < 1000; i++)
        memset(malloc(50000), 1, 50000);
    CHECK(!setgid(65534) && !setuid(65534));
    free(memset(malloc(40 << 20), 1, 40 << 20));
    DIR *tasks = opendir("/proc/self/task");
    int others = 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], line[256];
        if (task->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *file = fopen(path, "r");
        int real = -1, effective = -1, saved = -1, files = -1;
        while (file && fgets(line, sizeof line, file))
            if (sscanf(line, "%*[UG]id: %d %d %d %d", &real, &effective, &saved, &files) == 4)
                others += real != 65534 || effective != 65534 || saved != 65534 || files != 65534;
        if (file)
            fclose(file);
    }
    printf("%d with other rights\n", others);
}
