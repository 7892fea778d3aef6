/* Allocates before every constructor, the C library's own included: `environ` is
 * not set then. Passes on plain glibc. */
#include "check.h"

static void *first_block;
static Held held;

static void first(void)
{
    first_block = malloc(500);
    CHECK(first_block);
    mark(first_block, 500);
    free(malloc(100000));
    free(calloc(3, 100));
    churn(&held, 500);
}
__attribute__((section(".preinit_array"), used)) static void (*const run_first)(void) = first;

int main(void)
{
    CHECK(verify(first_block) == 500);
    first_block = realloc(first_block, 40000);
    CHECK(first_block);
    free(first_block);
    churn(&held, 5000);
    churn_end(&held);
    return 0;
}
