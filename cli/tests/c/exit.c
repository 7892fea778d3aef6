/* The end of a process with much memory, as its parent sees it: descriptors are closed, all but the heap is let go of
 * and the status is there while a reaper still has the memory, nobody loses any, and nothing remains.
 *
 * The parent of these children is where orphans go. A child ends in one of several ways; who ends without
 * a reaper is as important as who ends with one. */
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)
#define NAME "allotment-reap"

static char *blocks[8];

/* 64 MiB: two large areas, and small objects. */
static void grow(void)
{
    for (int at = 0; at < 2; at++)
        blocks[at] = malloc(24 * MIB), memset(blocks[at], at + 1, 24 * MIB);
    for (int at = 0; at < 16384; at++)
        memset(malloc(1024), 3, 1024);
}

static bool intact(void)
{
    for (int at = 0; at < 2; at++)
        for (size_t byte = 0; byte < 24 * MIB; byte += 512)
            if (blocks[at][byte] != at + 1)
                return false;
    return true;
}

static atomic_int go;
static void *ends_too(void *how)
{
    while (!atomic_load(&go))
        sched_yield();
    if ((intptr_t)how % 2)
        exit(0);
    _exit(0);
}

static void many_at_once(void)
{
    pthread_t thread;
    for (intptr_t at = 0; at < 8; at++)
        pthread_create(&thread, 0, ends_too, (void *)at);
    atomic_store(&go, 1);
    pause();
}

static void *allocates(void *unused)
{
    for (;;)
        free(memset(malloc(1000), 1, 1000)), free(malloc(100000));
    return unused;
}

static int becomes(void)
{
    execl("/bin/true", "true", (char *)0);
    return 1;
}

/* A task that uses the memory of the process and outlives it. */
static char stack[65536];
static int lives_on(void *unused)
{
    (void)unused;
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    syscall(SYS_close_range, 0, ~0u, 0);
    syscall(SYS_rt_sigtimedwait, &set, 0, 0, 8);
    syscall(SYS_exit_group, intact() ? 0 : 1);
    return 0;
}

/* What the last flush of the streams does, when all handlers have run and the reaper is there. */
static const char *late;
static atomic_int signalled;
static void on_signal(int number) { atomic_store(&signalled, number); }
static ssize_t flushed(void *unused, const char *bytes, size_t count)
{
    (void)unused, (void)bytes;
    if (!strcmp(late, "late_stop"))
        raise(SIGSTOP);
    else if (!strcmp(late, "late_exec"))
        becomes();
    signal(SIGUSR1, on_signal), raise(SIGUSR1);
    if (atomic_load(&signalled) != SIGUSR1 || !intact())
        syscall(SYS_exit_group, 3);
    return (ssize_t)count;
}

static void ends(const char *how)
{
    pthread_t thread;
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR2), sigprocmask(SIG_BLOCK, &set, 0);
    if (!strcmp(how, "untouched"))
        blocks[0] = malloc(64 * MIB);
    else if (strcmp(how, "small"))
        grow();
    if (!strcmp(how, "_exit"))
        _exit(0);
    else if (!strcmp(how, "_Exit"))
        _Exit(0);
    else if (!strcmp(how, "quick_exit"))
        quick_exit(0);
    else if (!strcmp(how, "thread"))
        pthread_create(&thread, 0, ends_too, (void *)1), atomic_store(&go, 1), pause();
    else if (!strcmp(how, "many"))
        many_at_once();
    else if (!strcmp(how, "busy"))
        for (int at = 0; at < 3; at++)
            pthread_create(&thread, 0, allocates, 0);
    else if (!strcmp(how, "killed"))
        kill(getpid(), SIGKILL);
    else if (!strcmp(how, "attached")) {
        int segment = atoi(getenv("SEGMENT"));
        char *shared = shmat(segment, 0, 0);
        CHECK(shared != (void *)-1);
        shared[0] = 1;
        for (int at = 0; at < 3; at++)
            pthread_create(&thread, 0, allocates, 0);
    } else if (!strncmp(how, "late", 4)) {
        pid_t own = getpid();
        if (!strcmp(how, "late_stop") && !fork()) {
            /* Whenever it stops, it goes on. */
            while (kill(own, SIGCONT) == 0 && getppid() == own)
                usleep(1000);
            syscall(SYS_exit_group, 0);
        }
        late = how;
        cookie_io_functions_t functions = {.write = flushed};
        FILE *stream = fopencookie(0, "w", functions);
        CHECK(stream && putc('x', stream) == 'x');
    } else if (!strcmp(how, "exec"))
        exit(becomes());
    else if (!strcmp(how, "confined"))
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    else if (!strcmp(how, "bare"))
        syscall(SYS_exit_group, 0);
    else if (!strcmp(how, "vfork")) {
        pid_t child = vfork();
        if (!child)
            _exit(7);
        int status;
        CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7 && intact());
        CHECK(waitpid(-1, 0, __WALL) == -1 && errno == ECHILD, "a reaper of the child");
        syscall(SYS_exit_group, 0);
    } else if (!strcmp(how, "forked")) {
        /* Both leave one. The parent ends first: the child's memory is its own. */
        if (!fork()) {
            usleep(50000);
            CHECK(intact());
            exit(0);
        }
    } else if (!strcmp(how, "shared"))
        CHECK(clone(lives_on, stack + sizeof stack, CLONE_VM, 0) > 0);
    exit(0);
}

typedef struct { pid_t pid; int status, out; } Child;

/* What the library is told by these words of the way it ends: nobody's child by default, and no reaper at all. */
static const char *knobs(const char *how)
{
    if (!strcmp(how, "off"))
        return "reap_parent=any";
    return strcmp(how, "stranger") ? "reap_bytes=32M,reap_parent=any" : "reap_bytes=32M";
}

static Child begin_at(const char *program, const char *how)
{
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    Child child = {.out = ends[0]};
    if (!(child.pid = fork())) {
        dup2(ends[1], 1);
        CHECK(chdir("/tmp") == 0);
        setpgid(0, 0);
        const char *conf = getenv("ALLOTMENT_CONF");
        char text[512];
        snprintf(text, sizeof text, "%s%s%s", conf ? conf : "", conf ? "," : "", knobs(how));
        setenv("ALLOTMENT_CONF", text, 1);
        execl(program, "exit", "end", how, (char *)0);
        _exit(1);
    }
    close(ends[1]);
    return child;
}

static Child begin(const char *how)
{
    return begin_at("/proc/self/exe", how);
}

/* Waits for it: by then nobody has its descriptors. */
static Child finish(Child child)
{
    char byte;
    CHECK(read(child.out, &byte, 1) == 0);
    close(child.out);
    CHECK(waitpid(child.pid, &child.status, 0) == child.pid);
    return child;
}

/* Orphans that came to us, each of which must have ended well. */
static int orphans(void)
{
    int count = 0, status;
    while (waitpid(-1, &status, __WALL) > 0) {
        CHECK(status == 0, "status %x", status);
        count++;
    }
    return count;
}

/* Whether reapers are to be expected at all. */
static bool expected(void)
{
    const char *preload = getenv("LD_PRELOAD");
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    if (unshare(CLONE_VM) == 0)
        return preload && strstr(preload, "allotment");
    say("skipped: exit: this system does not let a process ask whether its memory is its own\n");
    exit(SKIPPED);
}

static void ways(void)
{
    bool preloaded = expected();
    static const struct { const char *how; int reapers, others; } each[] = {
        {"exit", 1}, {"_exit", 1}, {"_Exit", 1}, {"quick_exit", 1}, {"thread", 1}, {"many", 1}, {"busy", 1},
        {"small", 0}, {"untouched", 0}, {"off", 0}, {"stranger", 0}, {"exec", 0}, {"confined", 0}, {"bare", 0}, {"vfork", 0}, {"forked", 2, 1},
        {"late", 1}, {"late_stop", 1, 1}, {"late_exec", 1},
    };
    for (size_t at = 0; at < sizeof each / sizeof *each; at++) {
        Child child = finish(begin(each[at].how));
        CHECK(child.status == 0, "%s: status %x", each[at].how, child.status);
        int found = orphans(), want = each[at].others + (preloaded ? each[at].reapers : 0);
        /* (Before glibc 2.41 the second thread in `exit` ends the first in the middle of its handlers.) */
        if (!strcmp(each[at].how, "many") && found < want)
            continue;
        CHECK(found == want, "%s: %d orphans, not %d", each[at].how, found, want);
    }
    Child child = finish(begin("killed"));
    CHECK(child.status == SIGKILL && orphans() == 0);
}

static int entries(pid_t pid, const char *what)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, what);
    DIR *directory = opendir(path);
    int count = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    if (directory)
        closedir(directory);
    return count;
}

/* The child of ours with this name; 0 if there is none. */
static pid_t called(const char *name)
{
    DIR *directory = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *entry; !found && (entry = readdir(directory));) {
        char path[64], text[256] = "", wanted[64], *behind;
        snprintf(path, sizeof path, "/proc/%.20s/stat", entry->d_name);
        snprintf(wanted, sizeof wanted, " (%s) ", name);
        int file = open(path, O_RDONLY);
        /* "pid (name) state parent": */
        if (file >= 0 && read(file, text, sizeof text - 1) > 0 && (behind = strstr(text, wanted)))
            if (behind += strlen(wanted), *behind != 'Z' && atoi(behind + 1) == getpid())
                found = atoi(entry->d_name);
        close(file);
    }
    closedir(directory);
    return found;
}

/* Somebody else still uses the memory: the reaper holds nothing, waits, and takes nothing from him. */
static void held(void)
{
    bool preloaded = expected();
    Child child = finish(begin("shared"));
    CHECK(child.status == 0);
    if (preloaded) {
        pid_t reaper = 0;
        /* (An orphan is ours only when the dying process is through with its end.) */
        for (int tries = 0; !(reaper = called(NAME)) && tries < 1000; tries++)
            usleep(1000);
        CHECK(reaper, "no reaper");
        char path[64], where[64] = "";
        snprintf(path, sizeof path, "/proc/%d/cwd", reaper);
        /* (A file without a name, that is to be the program of this memory.) */
        CHECK(entries(reaper, "fd") == 1 && entries(reaper, "task") == 1);
        CHECK(readlink(path, where, sizeof where - 1) == 1 && where[0] == '/');
        CHECK(getsid(reaper) == reaper && getpgid(reaper) == reaper);
        int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGSEGV, SIGALRM};
        for (int at = 0; at < 6; at++)
            kill(reaper, signals[at]);
        usleep(20000);
        CHECK(called(NAME) == reaper && memory_of(reaper).resident >= 56 * MIB, "%zu bytes", memory_of(reaper).resident);
    }
    pid_t other = called("exe");
    CHECK(other && kill(other, SIGUSR2) == 0);
    CHECK(orphans() == (preloaded ? 2 : 1));
}

static void copy(const char *from, const char *to)
{
    static char bytes[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    CHECK(in >= 0 && out >= 0);
    for (ssize_t count; (count = read(in, bytes, sizeof bytes)) > 0;)
        CHECK(write(out, bytes, (size_t)count) == count);
    close(in);
    close(out);
}

/* When the parent has waited, nothing but the heap is left: no attached memory, no running program, no busy mount. */
static void gone(void)
{
    bool preloaded = expected();
    char directory[] = "/tmp/allotment-exit-XXXXXX", program[64], text[16];
    CHECK(mkdtemp(directory));
    /* (As root.) */
    bool mounted = unshare(CLONE_NEWNS) == 0 && mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) == 0 &&
                   mount("none", directory, "tmpfs", 0, "size=16m") == 0;
    if (!mounted)
        say("skipped: gone: no mount can be made here\n");
    snprintf(program, sizeof program, "%s/program", directory);
    int segment = shmget(IPC_PRIVATE, MIB, 0600);
    snprintf(text, sizeof text, "%d", segment), setenv("SEGMENT", text, 1);
    int found = 0;
    for (int round = 0; round < 20; round++) {
        copy("/proc/self/exe", program);
        Child child = begin_at(program, "attached");
        CHECK(waitpid(child.pid, &child.status, 0) == child.pid && child.status == 0, "status %x", child.status);
        struct shmid_ds state;
        CHECK(shmctl(segment, IPC_STAT, &state) == 0 && state.shm_nattch == 0, "attached %d", (int)state.shm_nattch);
        int file = open(program, O_WRONLY);
        CHECK(file >= 0, "the program's file");
        close(file);
        CHECK(!mounted || umount(directory) == 0, "the mount");
        CHECK(!mounted || mount("none", directory, "tmpfs", 0, "size=16m") == 0);
        close(child.out), found += orphans();
    }
    shmctl(segment, IPC_RMID, 0);
    CHECK(found == (preloaded ? 20 : 0), "%d reapers", found);
    CHECK(!mounted || umount(directory) == 0);
    unlink(program), rmdir(directory);
}

/* Many, one after the other and some at a time: none is left. */
static void many(void)
{
    bool preloaded = expected();
    int found = 0;
    for (int round = 0; round < 8; round++) {
        Child children[3];
        for (int at = 0; at < 3; at++)
            children[at] = begin("busy");
        for (int at = 0; at < 3; at++)
            CHECK(finish(children[at]).status == 0);
    }
    found = orphans();
    CHECK(found == (preloaded ? 24 : 0), "%d", found);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "end"))
        ends(argv[2]);
    free(malloc(100)); /* (a run without any allocation would be no test of ours) */
    static const Case cases[] = {{"ways", ways}, {"held", held}, {"gone", gone}, {"many", many}};
    return RUN_CASES(cases);
}
