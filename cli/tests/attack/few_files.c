// about: few descriptors, small files and no processes but this one, from the start
// limit: -n 8
// limit: -f 100
#include "../c/check.h"
#include <sys/wait.h>

int main(void)
{
    static Held held;
    churn(&held, 20000);
    free(memset(malloc(80 << 20), 1, 80 << 20));
    pid_t child = fork();
    if (!child) {
        churn(&held, 5000);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    churn_end(&held);
    printf("status %#x\n", status);
}
