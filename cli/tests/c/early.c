/* A library that the test programs need: it comes to life before the preloaded
 * one's constructor has run, and allocates there, in its fork handlers, at exit
 * and when it goes. */
#include "check.h"
#include <pthread.h>

int early_forks;
void *early_block;
static void *kept[64];
/* The forking thread's: glibc runs handlers of several forks side by side. */
static _Thread_local void *in_flight;

static void prepare(void)
{
    in_flight = malloc(300);
    CHECK(in_flight);
    mark(in_flight, 300);
    free(malloc(40000));
}

static void done(void)
{
    drop(in_flight);
    in_flight = NULL;
    void *block = malloc(3000);
    CHECK(block);
    mark(block, 3000);
    drop(block);
    early_forks++;
}

static void at_end(void)
{
    for (int at = 0; at < 64; at++) {
        drop(kept[at]);
        kept[at] = malloc(100);
        mark(kept[at], 100);
    }
}

__attribute__((constructor)) static void begin(void)
{
    for (int at = 0; at < 64; at++) {
        size_t size = (size_t)16 << at % 16;
        kept[at] = malloc(size);
        CHECK(kept[at]);
        mark(kept[at], size);
    }
    early_block = malloc(1000);
    mark(early_block, 1000);
    CHECK(!pthread_atfork(prepare, done, done));
    CHECK(!atexit(at_end));
}

__attribute__((destructor)) static void end(void)
{
    /* Before or after at_end, as the loader likes. */
    for (int at = 0; at < 64; at++)
        drop(kept[at]), kept[at] = NULL;
    free(malloc(100000));
}
