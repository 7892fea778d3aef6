/* fork, vfork and their relatives from a program whose threads never stop
 * allocating; parent and child both go on. Linked with early.so, whose fork
 * handlers allocate and were there before the preloaded library's. FORKS
 * (default 60) is how often. Passes on plain glibc. */
#include "check.h"
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
extern int early_forks;
extern void *early_block;

enum { THREADS = 4 };
static atomic_bool stop;
static cpu_set_t allowed;
static pthread_t thread[THREADS];
static atomic_ulong rounds;

static int forks(void)
{
    const char *text = getenv("FORKS");
    return text ? atoi(text) : 60;
}

static void *load(void *argument)
{
    Held *held = calloc(1, sizeof *held);
    held->random.state = (uintptr_t)argument;
    while (!stop) {
        churn(held, 50);
        rounds += 50;
    }
    churn_end(held);
    free(held);
    return NULL;
}

static void begin_load(void)
{
    stop = false;
    for (uintptr_t at = 0; at < THREADS; at++)
        CHECK(!pthread_create(&thread[at], NULL, load, (void *)(at + 1)));
}

static void end_load(void)
{
    stop = true;
    for (int at = 0; at < THREADS; at++)
        CHECK(!pthread_join(thread[at], NULL));
}

static void passed(pid_t child)
{
    int status;
    CHECK(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
}

static Held *shared_before;

/* What the child does: everything, with what it inherited and with its own. */
__attribute__((noreturn)) static void child_works(int depth);
static void child_works(int depth)
{
    churn(shared_before, 3000); /* frees the parent's blocks, checks their contents */
    pthread_t mine[2];
    stop = false;
    for (uintptr_t at = 0; at < 2; at++)
        CHECK(!pthread_create(&mine[at], NULL, load, (void *)(at + 50)));
    churn(shared_before, 3000);
    if (depth > 0) {
        pid_t grandchild = fork();
        if (grandchild == 0)
            child_works(depth - 1);
        passed(grandchild);
    }
    malloc_trim(0);
    churn(shared_before, 1000);
    stop = true;
    for (int at = 0; at < 2; at++)
        CHECK(!pthread_join(mine[at], NULL));
    churn_end(shared_before);
    if (depth % 2)
        exit(0);
    _exit(0);
}

static void under_load(void)
{
    shared_before = calloc(1, sizeof *shared_before);
    shared_before->random.state = 7;
    churn(shared_before, 2000);
    begin_load();
    for (int at = 0; at < forks(); at++) {
        pid_t child = fork();
        if (child == 0)
            child_works(at % 4 == 0);
        churn(shared_before, 1000);
        passed(child);
    }
    end_load();
    churn_end(shared_before);
    free(shared_before);
}

/* Several threads fork at once. */
static void *forker(void *argument)
{
    Held *held = calloc(1, sizeof *held);
    held->random.state = (uintptr_t)argument;
    for (int at = 0; at < forks() / 3; at++) {
        churn(held, 300);
        pid_t child = fork();
        if (child == 0) {
            churn(held, 1000);
            churn_end(held);
            _exit(0);
        }
        passed(child);
    }
    churn_end(held);
    free(held);
    return NULL;
}

static void many_forkers(void)
{
    pthread_t forking[3];
    begin_load();
    for (uintptr_t at = 0; at < 3; at++)
        CHECK(!pthread_create(&forking[at], NULL, forker, (void *)(at + 20)));
    for (int at = 0; at < 3; at++)
        CHECK(!pthread_join(forking[at], NULL));
    end_load();
}

/* Handlers of the program itself, registered after everybody's. */
static int handled;
static void *in_flight;
static void prepare(void) { in_flight = malloc(5000); CHECK(in_flight); mark(in_flight, 5000); free(malloc(100)); free(malloc(2 << 20)); }
static void done(void) { drop(in_flight); free(malloc(70000)); free(calloc(10, 10)); handled++; }

static void atfork(void)
{
    static int registered;
    if (!registered++)
        CHECK(!pthread_atfork(prepare, done, done));
    begin_load();
    for (int at = 0; at < forks() / 2; at++) {
        int before = handled, early_before = early_forks;
        pid_t child = fork();
        CHECK(handled == before + 1 && early_forks == early_before + 1);
        if (child == 0) {
            Held held = {.random.state = 3};
            churn(&held, 500);
            churn_end(&held);
            _exit(0);
        }
        passed(child);
    }
    end_load();
}

/* A chain: each child is the next parent. */
static void chain(void)
{
    pid_t child = 0;
    Held *held = calloc(1, sizeof *held);
    int depth;
    for (depth = 0; depth < 12; depth++) {
        churn(held, 1000);
        child = fork();
        if (child)
            break;
    }
    churn(held, 1000);
    churn_end(held);
    free(held);
    if (child)
        passed(child);
    if (depth)
        _exit(0);
}

/* The child shares our memory and our thread's area until it execs or exits; it moves
 * between CPUs, and allocates although it should not, as real ones do. */
static void vfork_child(Random *random, bool allocate)
{
    for (int at = 0; at < 20; at++) {
        hop(0, &allowed, random);
        if (allocate)
            for (int round = 0; round < 50; round++) {
                size_t size = some_size(random);
                void *block = malloc(size);
                if (!block)
                    _exit(2);
                mark(block, size);
                drop(block);
            }
    }
}

static void *vforker(void *argument)
{
    Random random = {(uintptr_t)argument};
    Held *held = calloc(1, sizeof *held);
    held->random.state = (uintptr_t)argument;
    for (volatile int at = 0; at < forks(); at++) {
        churn(held, 100);
        pid_t child = vfork();
        if (child == 0) {
            vfork_child(&random, at % 2);
            if (at % 3 == 0) {
                execl("/bin/true", "true", (char *)NULL);
                _exit(3);
            }
            _exit(0);
        }
        sched_setaffinity(0, sizeof allowed, &allowed);
        passed(child);
    }
    churn_end(held);
    free(held);
    return NULL;
}

static void vfork_under_load(void)
{
    CHECK(!sched_getaffinity(0, sizeof allowed, &allowed));
    begin_load();
    vforker((void *)11);
    pthread_t others[2];
    for (uintptr_t at = 0; at < 2; at++)
        CHECK(!pthread_create(&others[at], NULL, vforker, (void *)(at + 30)));
    vforker((void *)12);
    for (int at = 0; at < 2; at++)
        CHECK(!pthread_join(others[at], NULL));
    unsigned long before = rounds;
    while (rounds < before + 1000) /* the others are not stuck */
        sched_yield();
    end_load();
}

/* A vfork child that is killed, and one whose exec fails. */
static void vfork_that_fails(void)
{
    Held *held = calloc(1, sizeof *held);
    for (volatile int at = 0; at < 20; at++) {
        pid_t child = vfork();
        if (child == 0) {
            if (at % 2)
                kill(getpid(), SIGKILL);
            execl("/nonexistent", "nonexistent", (char *)NULL);
            _exit(errno == ENOENT ? 9 : 1);
        }
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(at % 2 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 9);
        churn(held, 500);
    }
    churn_end(held);
    free(held);
}

static void *spawner(void *argument)
{
    Held *held = calloc(1, sizeof *held);
    held->random.state = (uintptr_t)argument;
    for (int at = 0; at < forks() / 3; at++) {
        pid_t child;
        char *command[] = {"sh", "-c", "exit 0", NULL};
        churn(held, 100);
        CHECK(!posix_spawnp(&child, "sh", NULL, NULL, command, environ));
        passed(child);
        CHECK(system("true") == 0);
        FILE *pipe = popen("echo one two three", "r");
        char line[64] = "";
        CHECK(pipe && fgets(line, sizeof line, pipe) && !strcmp(line, "one two three\n"));
        CHECK(pclose(pipe) == 0);
    }
    churn_end(held);
    free(held);
    return NULL;
}

static void spawn(void)
{
    pthread_t other;
    begin_load();
    CHECK(!pthread_create(&other, NULL, spawner, (void *)60));
    spawner((void *)61);
    CHECK(!pthread_join(other, NULL));
    end_load();
}

/* A daemon: the parent goes, the grandchild closes all files and works on. */
static void daemonised(void)
{
    int ends[2];
    CHECK(!pipe(ends));
    Held *held = calloc(1, sizeof *held);
    churn(held, 2000);
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork())
            _exit(0);
        int keep = dup2(ends[1], 100);
        for (int at = 0; at < 100; at++)
            close(at);
        churn(held, 20000);
        churn_end(held);
        _exit(write(keep, "done", 4) == 4 ? 0 : 1);
    }
    passed(child);
    close(ends[1]);
    char text[8];
    CHECK(read(ends[0], text, sizeof text) == 4);
    close(ends[0]);
    churn_end(held);
    free(held);
}

int main(int argc, char **argv)
{
    CHECK(verify(early_block) == 1000);
    static const Case cases[] = {
        {"load", under_load}, {"forkers", many_forkers}, {"atfork", atfork}, {"chain", chain}, {"vfork", vfork_under_load},
        {"vfork_fails", vfork_that_fails}, {"spawn", spawn}, {"daemon", daemonised},
    };
    return RUN_CASES(cases);
}
