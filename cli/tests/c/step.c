/* Runs a child that allocates one instruction at a time, as a debugger does. A
 * restartable sequence is interrupted at every step then and can never commit:
 * it must give up and go another way. Passes on plain glibc. */
#include "step.h"

static Held held;

int main(void)
{
    churn(&held, 2000);
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
            _exit(SKIPPED);
        raise(SIGSTOP);
        for (int at = 0; at < 2; at++) {
            char *block[8];
            for (int which = 0; which < 8; which++)
                *(block[which] = malloc(20)) = (char)which;
            for (int which = 0; which < 8; which++) {
                CHECK(*block[which] == which);
                free(block[which]);
            }
        }
        _exit(0);
    }
    int status;
    long steps = step_through(child, &status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        return SKIPPED;
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
    CHECK(steps > 1000, "%ld steps", steps);
    churn_end(&held);
    return 0;
}
