/* Loads a library with the allocator inside, uses it, closes it, some times over: beside threads that have used it and live
 * on, with forks while it is closed; then the process ends as any other.
 *
 * What runs Rust's thread-local destructors keeps a library mapped as long as it lives: so all but the simplest calls
 * are made in threads that have ended when the library is closed.
 *
 *   unload rust|c LIBRARY */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

static const char *library;
static bool rust;
static atomic_int stop, used;

static void *look(void *handle, const char *name)
{
    void *found = dlsym(handle, name);
    CHECK(found, "%s", dlerror());
    return found;
}

/* Little: without a thread-local. */
static void *touches(void *handle)
{
    if (rust) {
        char *(*make)(void) = look(handle, "plugin_text");
        void (*done)(char *) = look(handle, "plugin_done");
        for (int at = 0; at < 1000; at++) {
            char *text = make();
            CHECK(!strcmp(text, "a text of the plug-in's heap"));
            done(text);
        }
    } else {
        void *(*make)(void) = look(handle, "allotment_counter_event_new");
        void (*add)(void *, uint64_t) = look(handle, "allotment_counter_event_add");
        uint64_t (*sum)(void *) = look(handle, "allotment_counter_event_sum");
        void *counter = make();
        CHECK(counter);
        for (int at = 0; at < 1000; at++)
            add(counter, 2);
        CHECK(sum(counter) == 2000);
    }
    return 0;
}

/* Much. */
static void *works(void *handle)
{
    touches(handle);
    if (rust) {
        int (*work)(size_t) = look(handle, "plugin_work");
        CHECK(work(8) == 0);
    }
    return 0;
}

/* Has run sequences of the library, whose descriptor the kernel may look at as long as the thread lives. */
static void *lives_on(void *handle)
{
    touches(handle);
    atomic_fetch_add(&used, 1);
    while (!atomic_load(&stop))
        sched_yield();
    return 0;
}

static void *opened(void)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK(handle, "%s", dlerror());
    return handle;
}

static void use(void *(*how)(void *))
{
    void *handle = opened();
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, how, handle) == 0 && pthread_join(thread, 0) == 0);
    CHECK(dlclose(handle) == 0);
}

static void forks(bool uses)
{
    pid_t child = fork();
    if (!child) {
        free(malloc(1000));
        if (uses)
            use(works);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %x", status);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    rust = !strcmp(argv[1], "rust"), library = argv[2];
    use(touches);
    forks(false);
    use(works);
    pthread_t threads[3];
    void *handle = opened();
    for (int at = 0; at < 3; at++)
        CHECK(pthread_create(threads + at, 0, lives_on, handle) == 0);
    while (atomic_load(&used) < 3)
        sched_yield();
    CHECK(dlclose(handle) == 0);
    for (int round = 0; round < 5; round++) {
        use(round % 2 ? works : touches);
        forks(round % 2);
    }
    atomic_store(&stop, 1);
    for (int at = 0; at < 3; at++)
        pthread_join(threads[at], 0);
    forks(true);
    use(works);
    printf("ok\n");
    return 0;
}
