// about: large blocks that shrank to a small part held their places: 7 of 300 under a limit (glibc: all), 405 MiB resident for 7 in windows of huge pages
// limit: -v 300000
#include "../c/check.h"

enum { BLOCKS = 300, LONG = 40 << 20, SHORT = 40 << 10 };

int main(void) {
    static unsigned char *block[BLOCKS];
    int taken = 0, wrong = 0;
    for (int at = 0; at < BLOCKS; at++) {
        unsigned char *more = malloc(LONG);
        if (!more)
            break;
        taken++;
        memset(more, at, SHORT);
        more[LONG - 1] = 1;
        block[at] = realloc(more, SHORT);
        if (!block[at])
            return 1;
    }
    for (int at = 0; at < taken; at++)
        for (int byte = 0; byte < SHORT; byte++)
            wrong += block[at][byte] != (unsigned char)at;
    long resident = (long)(memory_of(0).resident >> 20);
    printf("%d taken, %d wrong\n", taken, wrong);
    if (resident > 100)
        printf("%ld MiB resident\n", resident);
    for (int at = 0; at < taken; at++)
        free(block[at]);
    return 0;
}
