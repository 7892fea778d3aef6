// about: the numbers of descriptors are the program's: those at the start, the next that open returns, none that appear later, and closed standard ones
// args: open
// args: closed
#include "../c/check.h"
#include <fcntl.h>

static char text[8192];

static void note(const char *what, long number)
{
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s %ld\n", what, number);
}

static void look(const char *when)
{
    for (int i = 0; i < 64; i++)
        if (fcntl(i, F_GETFD) >= 0)
            note(when, i);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "closed")) {
        dup2(1, 9);
        for (int i = 0; i < 9; i++)
            close(i);
        char *words[] = {argv[0], argv[1], "stage", NULL};
        execv("/proc/self/exe", words);
        _exit(1);
    }
    int out = argc > 2 ? 9 : 1;
    look("at the start");
    free(memset(malloc(40 << 20), 1, 40 << 20));
    for (int i = 0; i < 1000; i++)
        memset(malloc(50000), 1, 50000);
    usleep(100000);
    look("later");
    note("open gives", open("/dev/null", O_RDONLY));
    note("open gives", open("/dev/null", O_RDONLY));
    write(out, text, strlen(text));
}
