// about: a library that fakes the time (libfaketime) looks other definitions up and allocates in its clock: the heap, which asked while it opened, waited for itself
// flags: -rdynamic -ldl
#include "../c/check.h"
#include <dlfcn.h>

typedef int (*Clock)(clockid_t, struct timespec *);
static Clock next_clock;

int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (!next_clock) {
        // What is not there makes the loader allocate a message.
        dlsym(RTLD_NEXT, "a_name_that_nobody_defines");
        next_clock = (Clock)dlsym(RTLD_NEXT, "clock_gettime");
        free(realloc(malloc(100), 5000));
        free(calloc(1, 100000));
    }
    return next_clock(clock, time);
}

int main(void)
{
    static Held held;
    churn(&held, 3000);
    struct timespec now;
    CHECK(!clock_gettime(CLOCK_MONOTONIC, &now));
    say("ok\n");
    return 0;
}
