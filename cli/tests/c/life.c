/* A process without files, before main, and at its ends. Linked with early.so. */
#include "check.h"
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>

extern void *early_block;

#define MIB ((size_t)1 << 20)

/* Somebody closes every file there is, as daemons and sandboxes do. */
static void *late_thread(void *argument)
{
    Held *held = calloc(1, sizeof *held);
    held->random.state = (uintptr_t)argument;
    churn(held, 20000);
    churn_end(held);
    free(held);
    return NULL;
}

static void files_closed(void)
{
    static Held held;
    churn(&held, 1000);
    int out = fcntl(1, F_DUPFD, 500);
    CHECK(out >= 500);
    if (syscall(SYS_close_range, 0, out - 1, 0) || syscall(SYS_close_range, out + 1, ~0U, 0))
        for (int file = 0; file < 2000; file++)
            if (file != out)
                close(file);
    churn(&held, 20000);
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, late_thread, NULL));
    CHECK(!pthread_join(thread, NULL));
    free(malloc(200 * MIB));
    churn_end(&held);
    dup2(out, 1), dup2(out, 2);
}

/* No files can be opened and none read: no /proc, no /sys. */
static void no_files(void)
{
    struct rlimit limit = {0, 0};
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
    static Held held;
    churn(&held, 20000);
    free(malloc(200 * MIB));
    malloc_trim(0);
    churn_end(&held);
}

/* Before main in an early library's constructor, and after it. */
static void *last_block;
static void at_exit(void)
{
    drop(last_block);
    Held *held = calloc(1, sizeof *held);
    churn(held, 1000);
    churn_end(held);
    free(held);
}
__attribute__((destructor)) static void very_last(void) { free(realloc(malloc(100), 100000)); }

static void before_and_after(void)
{
    CHECK(verify(early_block) == 1000);
    drop(early_block);
    early_block = NULL;
    last_block = malloc(3000);
    mark(last_block, 3000);
    CHECK(!atexit(at_exit));
}

/* Threads still at work when the process ends. */
static void *endless(void *argument)
{
    Held *held = calloc(1, sizeof *held);
    held->random.state = (uintptr_t)argument;
    for (;;)
        churn(held, 100);
    return NULL;
}

static void exit_under_load(void)
{
    pthread_t thread;
    for (uintptr_t at = 0; at < 4; at++)
        CHECK(!pthread_create(&thread, NULL, endless, (void *)at));
    CHECK(!atexit(at_exit));
    usleep(20000);
    say("ok exit\n");
    exit(0);
}

static void leave_at_once(void) { free(malloc(100)); _exit(5); }
static void give_up(void) { free(malloc(100)); abort(); }

/* The initial thread ends, others go on. */
static void *outlives(void *argument)
{
    usleep(20000);
    late_thread(argument);
    say("ok main_thread_ends\n");
    exit(0);
}
static void main_thread_ends(void)
{
    pthread_t thread;
    free(malloc(100));
    CHECK(!pthread_create(&thread, NULL, outlives, NULL));
    pthread_exit(NULL);
}

int main(int argc, char **argv)
{
    static const Case cases[] = {
        {"files_closed", files_closed}, {"no_files", no_files}, {"before_and_after", before_and_after},
        {"exit_under_load", exit_under_load}, {"leave_at_once", leave_at_once}, {"abort", give_up},
        {"main_thread_ends", main_thread_ends},
    };
    CHECK(argc == 2, "life CASE");
    return RUN_CASES(cases);
}
