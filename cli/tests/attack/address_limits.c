// about: under a limit of address space what was freed small serves large, and a realloc that shrinks never fails
// args: from the start
// args: later
// limit: -v 60000
#include "../c/check.h"
#include <sys/resource.h>

#ifndef WHAT
#define WHAT RLIMIT_AS
#endif

/* What is in use of it, as the kernel counts. */
static long used(void)
{
    if (WHAT == RLIMIT_DATA)
        return 0;
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    return pages * 4096;
}

static void *block[8192];

static int fill(int most, size_t size)
{
    int count = 0;
    while (count < most && (block[count] = malloc(size)))
        memset(block[count++], 1, size);
    return count;
}

static int refused(int count, int step, size_t size)
{
    int failed = 0;
    for (int i = 0; i < count; i += step) {
        void *smaller = realloc(block[i], size);
        failed += !smaller;
        if (smaller)
            block[i] = smaller;
    }
    for (int i = 0; i < count; i++)
        free(block[i]);
    return failed;
}

static void attempt(const char *when)
{
    int small = fill(4096, 10000);
    int failed = refused(small, 7, 100);
    int large = fill(200, 1 << 20);
    int failed_large = refused(large, 1, 1000);
    void *huge = malloc(60 << 20);
    int error = errno;
    fprintf(stderr, "%s: %d of 10 kB, %d of 1 MiB\n", when, small, large);
    printf("%s: shrinks failed %d %d; small %s, large %s; 60 MiB %s\n", when, failed, failed_large,
           small >= 1000 ? "many" : small >= 20 ? "some" : "few", large >= small / 150 ? "many" : "few",
           huge ? "yes" : error == ENOMEM ? "no" : "no, wrong error");
    free(huge);
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        attempt("from the start");
        attempt("again");
        return 0;
    }
    /* Memory that was freed may still be in use of it; the limit cannot be raised again. */
    refused(fill(500, 10000), 7, 100);
    struct rlimit limit = {used() + (20 << 20), used() + (20 << 20)};
    CHECK(!setrlimit(WHAT, &limit));
    attempt("later");
    attempt("later again");
}
