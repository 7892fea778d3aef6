/* deny ERRNO SYSCALL... -- PROGRAM ARGS: from here on the system answers these
 * calls (names or numbers) with that error (a number), in PROGRAM too; or, for the number 0, it ends who makes one. */
#include "deny.h"

int main(int argc, char **argv)
{
    int numbers[32], count = 0, at = 2;
    CHECK(argc > 4, "deny ERRNO SYSCALL... -- PROGRAM ARGS");
    for (; at < argc && strcmp(argv[at], "--"); at++) {
        numbers[count] = call_number(argv[at]);
        CHECK(numbers[count] >= 0 && count < 31, "%s", argv[at]);
        count++;
    }
    CHECK(at + 1 < argc);
    if (!deny(numbers, count, atoi(argv[1]) ? SECCOMP_RET_ERRNO | (unsigned)atoi(argv[1]) : SECCOMP_RET_KILL_PROCESS))
        return SKIPPED;
    execvp(argv[at + 1], argv + at + 1);
    return 127;
}
