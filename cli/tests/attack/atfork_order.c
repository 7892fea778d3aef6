// about: a library's fork handler takes a lock under which others allocate; it was registered before the heap's handlers, so runs after them
// library
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LIB
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void before(void) { pthread_mutex_lock(&lock); }
static void after(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void registers(void) { pthread_atfork(before, after, after); }

void works(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 50; i++)
        free(malloc(16 + i * 700));
    pthread_mutex_unlock(&lock);
}
#else
void works(void);

static void *load(void *none)
{
    for (;;)
        works();
    return none;
}

int main(void)
{
    pthread_t thread;
    for (int i = 0; i < 2; i++)
        pthread_create(&thread, NULL, load, NULL);
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (!child) {
            works();
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
#endif
