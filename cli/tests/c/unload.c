/* Loads a library with the allocator inside, uses it, closes it, some times over: beside threads that go on, with forks
 * while it is closed, by way of a thread that has used it and lives on; then the process ends as any other.
 *
 *   unload rust|c LIBRARY */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

static const char *library;
static bool rust;
static atomic_int stop;

/* One use of the library, open while it lasts. */
static void use(void)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK(handle, "%s", dlerror());
    if (rust) {
        int (*work)(size_t) = dlsym(handle, "plugin_work");
        char *(*text)(void) = dlsym(handle, "plugin_text");
        CHECK(work && text && work(4) == 0);
        CHECK(!strcmp(text(), "a text of the plug-in's heap"));
    } else {
        void *(*make)(void) = dlsym(handle, "allotment_counter_event_new");
        void (*add)(void *, uint64_t) = dlsym(handle, "allotment_counter_event_add");
        uint64_t (*sum)(void *) = dlsym(handle, "allotment_counter_event_sum");
        void *counter = make();
        CHECK(counter);
        for (int at = 0; at < 1000; at++)
            add(counter, 2);
        CHECK(sum(counter) == 2000);
    }
    CHECK(dlclose(handle) == 0);
}

/* Has run sequences of the library, whose descriptor the kernel may look at as long as the thread lives. */
static void *lives_on(void *unused)
{
    use();
    while (!atomic_load(&stop))
        sched_yield();
    return unused;
}

static void forks(bool uses)
{
    pid_t child = fork();
    if (!child) {
        free(malloc(1000));
        if (uses)
            use();
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %x", status);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    rust = !strcmp(argv[1], "rust"), library = argv[2];
    pthread_t threads[3];
    for (int at = 0; at < 3; at++)
        CHECK(pthread_create(threads + at, 0, lives_on, 0) == 0);
    for (int round = 0; round < 5; round++) {
        use();
        forks(round % 2);
    }
    atomic_store(&stop, 1);
    for (int at = 0; at < 3; at++)
        pthread_join(threads[at], 0);
    forks(true);
    use();
    printf("ok\n");
    return 0;
}
