/* What the lab's checks do inside a program: trial NAME ARGUMENT...
 *
 *   refused               asks until the system refuses (overcommit_memory=2), and goes on
 *   replace MIB TOTAL     holds so many MiB of blocks, replaces TOTAL MiB of them, checks every byte
 *   small                 a few blocks of each size; says the resident memory, in KiB
 *   swapped MIB           has its blocks paged out, checks them, frees half, checks again
 *   isolated CPU          an owner on a CPU that the kernel keeps quiet, drained gently and by force
 *   screen SECONDS WORD KEYS PROGRAM...  a program on a terminal of 80 x 24 until it has drawn WORD (SECONDS at most);
 *                         then sends KEYS; prints what it drew
 *
 * The last line says what was seen. Ends with 0, 1 (a check failed) or 77 (skipped). */
#include "../cli/tests/c/check.h"
#include <allotment.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <termios.h>

/* There under the library only. */
#pragma weak allotment_drain

enum { MIB = 1 << 20 };

struct block {
    size_t size;
    uint64_t seed;
    unsigned char bytes[];
};

static struct block *made(size_t size, uint64_t seed)
{
    struct block *block = malloc(sizeof *block + size);
    if (!block)
        return NULL;
    block->size = size;
    block->seed = seed;
    for (size_t at = 0; at < size; at++)
        block->bytes[at] = (unsigned char)(seed + at * 13);
    return block;
}

static void checked(const struct block *block)
{
    for (size_t at = 0; at < block->size; at++)
        CHECK(block->bytes[at] == (unsigned char)(block->seed + at * 13), "byte %zu of %zu", at, block->size);
}

/* A number of a file of /proc, in KiB. */
static long kib_of(const char *path, const char *name)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen(path, "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
            kib = atol(line + strlen(name) + 1);
    fclose(file);
    return kib;
}

static long status(const char *name)
{
    return kib_of("/proc/self/status", name);
}

static int refused(void)
{
    static void *blocks[65536];
    errno = 0;
    void *volatile huge = malloc((size_t)1 << 40);
    CHECK(!huge && errno == ENOMEM, "1 TiB");
    int count = 0;
    errno = 0;
    while (count < 65536 && (blocks[count] = malloc(MIB)))
        count++;
    CHECK(count < 65536 && errno == ENOMEM, "%d blocks of 1 MiB", count);
    for (int at = 0; at < count; at++)
        free(blocks[at]);
    /* What was refused comes back, for small blocks, too. */
    int again = 0, small = 0;
    while (again < count / 2 && (blocks[again] = malloc(MIB)))
        memset(blocks[again], again, 64), again++;
    CHECK(again == count / 2, "%d of %d blocks again", again, count);
    struct block *kept[1000];
    for (; small < 1000; small++)
        CHECK((kept[small] = made(100 + (size_t)small * 8, (uint64_t)small)), "small block %d", small);
    for (small = 0; small < 1000; small++)
        checked(kept[small]), free(kept[small]);
    for (int at = 0; at < again; at++)
        free(blocks[at]);
    malloc_trim(0);
    printf("refused with ENOMEM after %d MiB, %d MiB again, 1000 small blocks; %ld MiB stay committed by all programs\n", count, again,
           kib_of("/proc/meminfo", "Committed_AS") / 1024);
    return 0;
}

static int replace(size_t live, size_t total)
{
    enum { COUNT = 4096 };
    static struct block *blocks[COUNT];
    uint64_t random = 1;
    size_t each = live * MIB / COUNT, replaced = 0;
    for (size_t done = 0; done < total * MIB;) {
        random = mix(random + 0x9e3779b97f4a7c15u);
        struct block **place = &blocks[random % COUNT];
        size_t size = random >> 32 & 1 ? each / 2 + (random >> 33) % each : each * 3 / 4 + (random >> 33) % (each / 2);
        if (*place)
            checked(*place), free(*place), replaced++;
        CHECK((*place = made(size, random)), "%zu bytes", size);
        done += size;
    }
    for (int at = 0; at < COUNT; at++)
        if (blocks[at])
            checked(blocks[at]), free(blocks[at]);
    printf("%zu MiB in %zu blocks replaced, at most about %zu MiB at a time; peak resident %ld KiB\n", total, replaced, live,
           status("VmHWM"));
    return 0;
}

static int small(void)
{
    void *volatile block;
    for (size_t size = 16; size <= 4096; size += 16)
        block = made(size, size), free(block);
    printf("%ld\n", status("VmRSS"));
    return 0;
}

static int swapped(size_t mib)
{
    size_t count = mib * MIB / 16384, half = count / 2;
    struct block **blocks = calloc(count, sizeof *blocks);
    CHECK(blocks);
    for (size_t at = 0; at < count; at++)
        /* Small ones and areas. */
        CHECK((blocks[at] = made(at % 64 == 0 ? 512 * 1024 : at % 2 ? 100 : 16000, at)));
    for (size_t at = 0; at < count; at++) {
        uintptr_t from = ((uintptr_t)blocks[at] + 4095) & -4096ul, to = ((uintptr_t)blocks[at] + blocks[at]->size) & -4096ul;
        if (from < to && madvise((void *)from, to - from, MADV_PAGEOUT)) {
            printf("the kernel pages nothing out: %s\n", strerror(errno));
            return SKIPPED;
        }
    }
    long out = status("VmSwap");
    CHECK(out > (long)mib * 512, "%ld KiB of %zu MiB were swapped out", out, mib);
    /* Freed while they are out: their swap goes back with them. */
    for (size_t at = 0; at < half; at++)
        free(blocks[at]);
    malloc_trim(0);
    long after = status("VmSwap");
    CHECK(after < out * 6 / 10, "%ld of %ld KiB are still out after a purge of half", after, out);
    for (size_t at = half; at < count; at++)
        checked(blocks[at]);
    for (size_t at = 0; at < half; at++) {
        size_t size = at % 64 == 0 ? 512 * 1024 : 16000;
        unsigned char *zero = calloc(1, size);
        CHECK(zero);
        for (size_t byte = 0; byte < size; byte++)
            CHECK(!zero[byte], "byte %zu of %zu", byte, size);
        free(zero);
    }
    for (size_t at = half; at < count; at++)
        checked(blocks[at]), free(blocks[at]);
    printf("%ld KiB out, %ld after half was freed and purged; all contents right\n", out, after);
    return 0;
}

static atomic_int stage;

static void *owner(void *argument)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((int)(intptr_t)argument, &one);
    CHECK(!sched_setaffinity(0, sizeof one, &one));
    for (int turn = 0; turn < 2; turn++) {
        void *blocks[1000];
        for (int at = 0; at < 1000; at++)
            CHECK((blocks[at] = malloc(64)));
        for (int at = 0; at < 1000; at++)
            free(blocks[at]);
        atomic_store(&stage, 2 * turn + 1);
        /* On the CPU all the time, without a call. */
        while (atomic_load(&stage) == 2 * turn + 1)
            ;
    }
    return NULL;
}

static int isolated(int cpu)
{
    pthread_t thread;
    allotment_drained asked = {0}, forced = {0};
    CHECK(allotment_drain, "the library is not there");
    CHECK(!pthread_create(&thread, NULL, owner, (void *)(intptr_t)cpu));
    while (atomic_load(&stage) != 1)
        usleep(1000);
    int code = allotment_drain(cpu, ALLOTMENT_DRAIN_AUTO, &asked);
    CHECK(code == -1 && errno == EAGAIN && asked.unreached == 1 && asked.fences == 0,
          "auto: %d, %lu unreached, %lu fences", code, asked.unreached, asked.fences);
    atomic_store(&stage, 2);
    while (atomic_load(&stage) != 3)
        usleep(1000);
    code = allotment_drain(cpu, ALLOTMENT_DRAIN_EXPEDITED, &forced);
    CHECK(code == 0 && forced.reached == 1 && forced.objects > 0, "expedited: %d, %lu reached, %lu objects", code,
          forced.reached, forced.objects);
    atomic_store(&stage, 4);
    pthread_join(thread, NULL);
    printf("CPU %d: auto asks and sends no fence; expedited took %lu objects with %lu fences\n", cpu, forced.objects, forced.fences);
    return 0;
}

static int screen(double seconds, const char *word, const char *keys, char **program)
{
    static char drawn[(1 << 20) + 1];
    size_t length = 0;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    CHECK(terminal >= 0 && !grantpt(terminal) && !unlockpt(terminal) && !ioctl(terminal, TIOCSWINSZ, &size), "no terminal");
    pid_t child = fork();
    if (child == 0) {
        setsid();
        int side = open(ptsname(terminal), O_RDWR);
        for (int at = 0; at < 3; at++)
            dup2(side, at);
        setenv("TERM", "xterm", 1);
        execvp(program[0], program);
        _exit(127);
    }
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    bool asked = false;
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        double passed = (double)(now.tv_sec - end.tv_sec) + (double)(now.tv_nsec - end.tv_nsec) / 1e9;
        if (!asked && passed > seconds)
            asked = write(terminal, keys, strlen(keys)) > 0;
        struct pollfd wait = {terminal, POLLIN, 0};
        char lost[4096];
        bool room = !asked && length < sizeof drawn - 1;
        if (poll(&wait, 1, 100) > 0) {
            ssize_t got = read(terminal, room ? drawn + length : lost, room ? sizeof drawn - 1 - length : sizeof lost);
            if (got <= 0)
                break;
            length += room ? (size_t)got : 0;
            /* The rest of that picture follows. */
            if (passed + 1 < seconds && strstr(drawn, word))
                seconds = passed + 1;
        }
        if (passed > seconds + 60)
            kill(child, SIGKILL);
    }
    int code = 0;
    CHECK(waitpid(child, &code, 0) == child && code == 0, "status %x", code);
    /* Text where the cursor goes; colours and the like are left out. */
    static char cells[24][80];
    memset(cells, ' ', sizeof cells);
    int row = 0, column = 0;
    for (size_t at = 0; at < length; at++) {
        unsigned char byte = (unsigned char)drawn[at];
        if (byte == 27 && drawn[at + 1] == '[') {
            size_t begin = at += 2;
            while (at < length && (drawn[at] < 64 || drawn[at] > 126))
                at++;
            if (drawn[at] == 'H' && sscanf(drawn + begin, "%d;%d", &row, &column) == 2)
                row--, column--;
        } else if (byte >= 32 && (byte & 0xc0) != 0x80 && row >= 0 && row < 24 && column >= 0) {
            /* What is no letter of ASCII is part of a line or a bar. */
            if (column < 80)
                cells[row][column] = byte < 128 ? (char)byte : '#';
            column++;
        }
    }
    for (row = 0; row < 24; row++)
        printf("%.80s\n", cells[row]);
    return 0;
}

int main(int count, char **words)
{
    const char *name = count > 1 ? words[1] : "";
    if (!strcmp(name, "refused"))
        return refused();
    if (!strcmp(name, "replace") && count == 4)
        return replace((size_t)atoi(words[2]), (size_t)atoi(words[3]));
    if (!strcmp(name, "small"))
        return small();
    if (!strcmp(name, "swapped") && count == 3)
        return swapped((size_t)atoi(words[2]));
    if (!strcmp(name, "isolated") && count == 3)
        return isolated(atoi(words[2]));
    if (!strcmp(name, "screen") && count > 5)
        return screen(atof(words[2]), words[3], words[4], words + 5);
    fputs("usage: see the head of trial.c\n", stderr);
    return 2;
}
