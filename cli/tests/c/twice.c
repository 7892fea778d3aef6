/* Pointers freed twice, and their kin, each in a process of its own: `twice` lists the cases, `twice CASE` runs one
 * and ends with 0 where nobody stopped it. Between the two frees nothing that free could be blamed for happens. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>

static void *volatile opaque;
static void *hide(void *pointer) { opaque = pointer; return opaque; }
static void more(size_t size, int count)
{
    void *block[200];
    for (int at = 0; at < count; at++)
        block[at] = malloc(size);
    for (int at = 0; at < count; at++)
        free(block[at]);
}

static void again(size_t size)
{
    void *block = malloc(size);
    free(hide(block)), free(hide(block));
}
static void at_once(void) { again(24); }
static void at_once_100(void) { again(100); }
static void at_once_1000(void) { again(1000); }
static void at_once_5000(void) { again(5000); }
static void at_once_30000(void) { again(30000); }
static void at_once_100000(void) { again(100000); }
static void at_once_4M(void) { again(4 << 20); }

static void after(int others)
{
    void *block = malloc(48), *other[200];
    for (int at = 0; at < others; at++)
        other[at] = malloc(48);
    free(hide(block));
    for (int at = 0; at < others; at++)
        free(other[at]);
    free(hide(block));
}
static void after_one(void) { after(1); }
static void after_5(void) { after(5); }
static void after_30(void) { after(30); }
static void after_200(void) { after(200); }

static void between_other_sizes(void)
{
    void *block = malloc(64);
    free(hide(block));
    more(32, 5), more(128, 5), more(5000, 2);
    free(hide(block));
}
static void the_first_of_three(void)
{
    void *first = malloc(40), *second = malloc(40), *third = malloc(40);
    free(hide(first)), free(hide(second)), free(hide(third)), free(hide(first));
}
static void all_of_many(void)
{
    void *block[100];
    for (int at = 0; at < 100; at++)
        block[at] = malloc(80);
    for (int round = 0; round < 2; round++)
        for (int at = 0; at < 100; at++)
            free(hide(block[at]));
}
static void zeroed(void)
{
    void *block = calloc(4, 50);
    free(hide(block)), free(hide(block));
}
static void aligned(void)
{
    void *block = memalign(64, 200);
    free(hide(block)), free(hide(block));
}
static void after_realloc_moved(void)
{
    void *block = malloc(40), *pin = malloc(40), *moved = realloc(hide(block), 4000);
    CHECK(moved != block);
    free(hide(block)), free(pin), free(moved);
}
static void realloc_of_freed(void)
{
    void *block = malloc(40);
    free(hide(block));
    free(realloc(hide(block), 400));
    free(hide(block));
}
static void realloc_to_nothing(void)
{
    void *block = malloc(40);
    CHECK(!realloc(hide(block), 0));
    free(hide(block));
}
static void *freer(void *block)
{
    free(block);
    return NULL;
}
static void by_two_threads(void)
{
    void *block = malloc(56);
    pthread_t thread;
    for (int turn = 0; turn < 2; turn++)
        CHECK(!pthread_create(&thread, NULL, freer, hide(block)) && !pthread_join(thread, NULL));
}
static void by_another_thread(void)
{
    void *block = malloc(56);
    pthread_t thread;
    free(hide(block));
    CHECK(!pthread_create(&thread, NULL, freer, hide(block)) && !pthread_join(thread, NULL));
}
static void inside(void)
{
    char *block = malloc(200);
    memset(block, 0, 200);
    free(hide(block + 32));
}
static void inside_odd(void)
{
    char *block = malloc(200);
    free(hide(block + 1));
}
static void behind(void)
{
    char *block = calloc(1, 64);
    free(hide(block + malloc_usable_size(block) + 8));
}
static void of_the_stack(void)
{
    char local[100];
    free(hide(local + 16));
}
static char fixed[64];
static void of_the_program(void) { free(hide(fixed + 16)); }
extern void sized_free(void *, size_t) __asm__("_ZdlPvm") __attribute__((weak));
static void sized(void)
{
    void *block = malloc(72);
    free(hide(block));
    if (sized_free)
        sized_free(hide(block), 72);
    else
        free(hide(block));
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } cases[] = {
        {"at_once", at_once}, {"at_once_100", at_once_100}, {"at_once_1000", at_once_1000},
        {"at_once_5000", at_once_5000}, {"at_once_30000", at_once_30000}, {"at_once_100000", at_once_100000},
        {"at_once_4M", at_once_4M}, {"after_one", after_one}, {"after_5", after_5}, {"after_30", after_30},
        {"after_200", after_200}, {"between_other_sizes", between_other_sizes},
        {"the_first_of_three", the_first_of_three}, {"all_of_many", all_of_many}, {"zeroed", zeroed},
        {"aligned", aligned}, {"after_realloc_moved", after_realloc_moved}, {"realloc_of_freed", realloc_of_freed},
        {"realloc_to_nothing", realloc_to_nothing}, {"by_two_threads", by_two_threads},
        {"by_another_thread", by_another_thread}, {"inside", inside}, {"inside_odd", inside_odd}, {"behind", behind},
        {"of_the_stack", of_the_stack}, {"of_the_program", of_the_program}, {"sized", sized},
    };
    for (size_t at = 0; at < sizeof cases / sizeof cases[0]; at++)
        if (argc < 2)
            puts(cases[at].name);
        else if (!strcmp(argv[1], cases[at].name))
            return cases[at].run(), 0;
    return argc < 2 ? 0 : 2;
}
