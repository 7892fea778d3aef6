// about: libraries that allocate when they are loaded, in their threads' storage and when they are unloaded, by threads, beside forks
// library
#include "../c/check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#ifdef LIB
static Held held;
static _Thread_local char storage[20000];
__attribute__((constructor)) static void loaded(void) { churn(&held, 300); }
__attribute__((destructor)) static void unloaded(void) { churn_end(&held); }

char *works(void)
{
    storage[0]++;
    return strdup("worked");
}
#else
static atomic_int done;

static void copy(const char *to)
{
    static char bytes[1 << 20];
    int in = open("libdlopen_threads.so", O_RDONLY), out = open(to, O_CREAT | O_WRONLY, 0700);
    CHECK(in >= 0 && out >= 0);
    CHECK(write(out, bytes, read(in, bytes, sizeof bytes)) > 0);
    close(in);
    close(out);
}

static void *loads(void *name)
{
    for (int i = 0; i < 40; i++) {
        void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        CHECK(library, "%s", dlerror());
        char *(*works)(void) = (char *(*)(void))dlsym(library, "works");
        char *said = works();
        CHECK(!strcmp(said, "worked"));
        dlclose(library);
        free(said);
    }
    done++;
    return NULL;
}

int main(void)
{
    char *names[3] = {"./a.so", "./b.so", "./c.so"};
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        copy(names[i]);
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&thread[i], NULL, loads, names[i]));
    while (done < 3) {
        pid_t child = fork();
        if (!child) {
            free(malloc(5000));
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && !status);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 3; i++)
        unlink(names[i]);
    puts("ok");
}
#endif
