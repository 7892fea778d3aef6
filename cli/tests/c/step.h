/* A traced child, instruction by instruction. */
#ifndef STEP_H
#define STEP_H
#include "check.h"
#include <sys/ptrace.h>
#include <sys/wait.h>

/* From where it stopped itself to its end: how many steps, and its status. */
static long step_through(pid_t child, int *status)
{
    CHECK(child > 0);
    long steps = 0;
    CHECK(waitpid(child, status, 0) == child);
    while (WIFSTOPPED(*status)) {
        CHECK(++steps < 2000000, "a sequence that never ends?");
        CHECK(!ptrace(PTRACE_SINGLESTEP, child, NULL, NULL));
        CHECK(waitpid(child, status, 0) == child);
    }
    return steps;
}
#endif
