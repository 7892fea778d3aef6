// about: an unlimited stack turns the address space round: mappings grow upwards from a third of it
// limit: -s unlimited
#include "../c/check.h"
#include <pthread.h>
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
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&thread[i], NULL, load, NULL));
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    char *block = NULL;
    for (size_t size = 1; size < 200 << 20; size *= 3) {
        block = realloc(block, size);
        block[size - 1] = 1;
    }
    free(block);
    pid_t child = fork();
    if (!child) {
        load(NULL);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("status %#x\n", status);
}
