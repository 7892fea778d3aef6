/* A program that becomes idle with one object in twenty kept: its memory goes
 * back to the system without any call, and what is kept stays as it was.
 *   idle small|mixed|pages    sizes of the objects
 *   idle fork                 a forked child has a keeper of its own
 *   idle unwatched            fills some memory and ends
 *   idle files                the keeper has none of the program's files, and takes no number of theirs
 *   idle errno                no thread can be made (run under a filter), and errno stays as it was
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OBJECTS = 60000, KEEP = 20 };
static unsigned char *objects[OBJECTS];
static size_t sizes[OBJECTS];

static size_t resident(void)
{
    static char text[256];
    size_t total = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    setvbuf(file, text, _IOFBF, sizeof text);
    fscanf(file, "%zu %zu", &total, &pages);
    fclose(file);
    return pages * 4096;
}

/* Fills, frees, waits; per cent of the freed bytes that were returned in the end. */
static long returned(size_t low, size_t high, long enough)
{
    unsigned long state = 88172645463325252UL;
    size_t freed = 0;
    for (int i = 0; i < OBJECTS; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        sizes[i] = low + state % (high - low + 1);
        objects[i] = malloc(sizes[i]);
        memset(objects[i], i, sizes[i]);
    }
    size_t full = resident();
    for (int i = 0; i < OBJECTS; i++)
        if (i % KEEP) {
            freed += sizes[i];
            free(objects[i]);
        }
    long percent = 0;
    for (int tenths = 0; tenths < 600 && percent < enough; tenths++) {
        usleep(100000);
        size_t now = resident();
        percent = now < full ? (long)((full - now) * 100 / freed) : 0;
    }
    for (int i = 0; i < OBJECTS; i += KEEP) {
        for (size_t at = 0; at < sizes[i]; at++)
            if (objects[i][at] != (unsigned char)i) {
                fprintf(stderr, "object %d is torn\n", i);
                exit(9);
            }
        free(objects[i]);
    }
    return percent;
}

static int check(size_t low, size_t high, long enough)
{
    long percent = returned(low, high, enough);
    printf("%zu to %zu bytes: %ld %% of what was freed went back\n", low, high, percent);
    return percent >= enough ? 0 : 1;
}

/* Whether thread `thread` of this process has file `number`. */
static int has(const char *thread, int number)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/self/task/%s/fd/%d", thread, number);
    return !access(path, F_OK);
}

static int files(void)
{
    /* The lowest number that is free is this one, whenever it is asked for. */
    int lowest = open("/dev/null", O_RDONLY);
    int kept = fcntl(lowest, F_DUPFD, 500);
    close(lowest);
    for (int i = 0; i < OBJECTS; i++)
        objects[i] = memset(malloc(256), i, 256);
    int found = 0;
    for (int tenths = 0; tenths < 200 && !found; tenths++) {
        for (int i = 0; i < 20000; i++) {
            int now = open("/dev/null", O_RDONLY);
            if (now != lowest) {
                fprintf(stderr, "file %d instead of %d\n", now, lowest);
                return 1;
            }
            close(now);
        }
        DIR *threads = opendir("/proc/self/task");
        for (struct dirent *entry; (entry = readdir(threads));) {
            if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
                continue;
            /* (It has the program's for a moment, until it runs.) */
            for (int wait = 0; wait < 50 && has(entry->d_name, kept); wait++)
                usleep(100000);
            if (has(entry->d_name, kept)) {
                fprintf(stderr, "thread %s has the program's files\n", entry->d_name);
                return 1;
            }
            found = 1;
        }
        closedir(threads);
    }
    return !found;
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    if (!strcmp(what, "pages"))
        return check(4096, 16384, 75);
    if (!strcmp(what, "mixed"))
        return check(16, 4096, 60);
    if (!strcmp(what, "small"))
        return check(16, 512, 1);
    if (!strcmp(what, "fork")) {
        if (check(4096, 4096, 75))
            return 1;
        pid_t child = fork();
        if (!child)
            _exit(check(4096, 4096, 75));
        int status = 0;
        waitpid(child, &status, 0);
        return status != 0;
    }
    if (!strcmp(what, "unwatched")) {
        for (int i = 0; i < 10000; i++)
            objects[i] = memset(malloc(4096), i, 4096);
        return 0;
    }
    if (!strcmp(what, "files"))
        return files();
    if (!strcmp(what, "errno")) {
        for (int i = 0; i < 2000; i++) {
            errno = 77;
            objects[i] = malloc(4096);
            if (!objects[i] || errno != 77) {
                fprintf(stderr, "errno became %d\n", errno);
                return 1;
            }
        }
        return 0;
    }
    return 64;
}
