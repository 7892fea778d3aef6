/* Areas from C and C++: include/allotment.h. */
#include "api.h"
#include <signal.h>

enum { THREADS = 4, ROUNDS = 3000, PAGE = 4096 };

static unsigned guard = ALLOTMENT_AREA_GUARD;

static void *use(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        size_t size = (size_t)(1 + i % 40) * PAGE - (size_t)(i % 2);
        unsigned char *area = (unsigned char *)allotment_area_alloc(size, 0, i % 3 ? 0 : guard);
        size_t whole = (size + PAGE - 1) / PAGE * PAGE, has = allotment_area_size(area);
        CHECK(area && (uintptr_t)area % PAGE == 0 && has % PAGE == 0 && has >= whole && has <= whole / 8 * 9);
        area[0] = area[size - 1] = (unsigned char)i;
        CHECK(area[0] == (unsigned char)i && area[size - 1] == (unsigned char)i);
        CHECK(allotment_area_free(area) == 0);
    }
    return unused;
}

/* Whether a write there ends a process. */
static int faults(unsigned char *at)
{
    pid_t child = fork();
    if (child == 0) {
        *(volatile unsigned char *)at = 1;
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

int main(void)
{
    errno = 0;
    CHECK(!allotment_area_alloc(PAGE, 3, 0) && errno == EINVAL);
    errno = 0;
    CHECK(!allotment_area_alloc(PAGE, 0, 8) && errno == EINVAL);
    errno = 0;
    CHECK(!allotment_area_alloc((size_t)1 << 60, 0, 0) && errno == ENOMEM);

    unsigned char *wide = (unsigned char *)allotment_area_alloc(100 * PAGE, (size_t)1 << 21, 0);
    CHECK(wide && (uintptr_t)wide % ((size_t)1 << 21) == 0);
    errno = 0;
    CHECK(allotment_area_free(wide + PAGE) == -1 && errno == EINVAL);
    CHECK(allotment_area_size(wide + PAGE) == 0);
    CHECK(allotment_area_free(wide) == 0);
    errno = 0;
    CHECK(allotment_area_free(wide) == -1 && errno == EINVAL);

    unsigned char *area = (unsigned char *)allotment_area_alloc(16 * PAGE, 0, ALLOTMENT_AREA_GUARD);
    if (!area) {
        CHECK(errno == ENOMEM);
        guard = 0; /* a kernel without guard pages */
    }
    /* Fresh, and reused: the guard is still there. */
    for (int i = 0; area && i < 2; i++) {
        unsigned char *last = area + 16 * PAGE - 1;
        CHECK(!faults(last) && faults(last + 1) && faults(last + PAGE));
        CHECK(allotment_area_free(area) == 0);
        CHECK(allotment_area_alloc(16 * PAGE, 0, ALLOTMENT_AREA_GUARD) == area);
    }
    CHECK(!area || allotment_area_free(area) == 0);

    void *other = malloc(10000);
    CHECK(allotment_area_free(other) == -1 && allotment_area_free(&other) == -1);
    free(other);
    CHECK(allotment_area_free(NULL) == 0);

    TOGETHER(THREADS, use);

    void *kept = allotment_area_alloc(9 * PAGE, 0, 0);
    pid_t child = fork();
    if (child == 0) {
        use(NULL);
        _exit(allotment_area_free(kept) == 0 ? 0 : 1);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(allotment_area_free(kept) == 0);
    puts("fine");
    return 0;
}
