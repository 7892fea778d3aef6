// about: fork beside threads that flush all streams, or allocate inside a locked one: the C library takes the list of streams after the handlers
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *flusher(void *none)
{
    for (;;)
        fflush(NULL);
    return none;
}

static void *reader(void *none)
{
    for (;;) {
        FILE *file = fopen("/proc/self/maps", "r");
        char *line = NULL;
        size_t size = 0;
        while (getline(&line, &size, file) > 0) {
            free(line);
            line = NULL;
            size = 0;
        }
        free(line);
        fclose(file);
    }
    return none;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, flusher, NULL);
    for (int i = 0; i < 3; i++)
        pthread_create(&thread, NULL, reader, NULL);
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (!child) {
            free(malloc(1000));
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status)
            printf("child %#x\n", status);
    }
    puts("ok");
    fflush(stdout);
    _exit(0);
}
