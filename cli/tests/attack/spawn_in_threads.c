// about: popen, system and posix_spawn in threads, beside threads that allocate and fork
#include "../c/check.h"
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
static atomic_bool stop;

static void *load(void *none)
{
    Held *held = calloc(1, sizeof *held);
    while (!stop)
        churn(held, 100);
    churn_end(held);
    free(held);
    return NULL;
}

static void *starts(void *way)
{
    for (int i = 0; i < 12; i++) {
        int status = 0;
        if ((uintptr_t)way == 0) {
            FILE *pipe = popen("echo said", "r");
            char line[64];
            CHECK(pipe && fgets(line, sizeof line, pipe) && !strcmp(line, "said\n"));
            status = pclose(pipe);
        } else if ((uintptr_t)way == 1)
            status = system(":");
        else if ((uintptr_t)way == 2) {
            char *words[] = {"true", NULL};
            pid_t child;
            CHECK(!posix_spawnp(&child, "true", NULL, NULL, words, environ));
            CHECK(waitpid(child, &status, 0) == child);
        } else {
            pid_t child = fork();
            if (!child) {
                free(malloc(100000));
                _exit(0);
            }
            CHECK(waitpid(child, &status, 0) == child);
        }
        CHECK(!status, "status %#x", status);
    }
    return NULL;
}

int main(void)
{
    pthread_t thread[4], loads[2];
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&loads[i], NULL, load, NULL));
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(!pthread_create(&thread[i], NULL, starts, (void *)i));
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(loads[i], NULL);
    puts("ok");
}
