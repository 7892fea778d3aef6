// about: a program that made no child has none to wait for, of whatever kind
#include "../c/check.h"
#include <sys/wait.h>

static void look(void)
{
    puts(waitpid(-1, NULL, 0) < 0 && errno == ECHILD ? "none" : "some");
    puts(waitpid(-1, NULL, __WALL) < 0 && errno == ECHILD ? "none" : "some");
}

int main(void)
{
    look();
    free(memset(malloc(40 << 20), 1, 40 << 20));
    for (int i = 0; i < 1000; i++)
        memset(malloc(50000), 1, 50000);
    look();
    usleep(50000);
    look();
}
