// Known sites that allocate known amounts, for the heap profile.
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SITE __attribute__((noinline, noclone))
// Not the last thing: a jump would leave the site out of the stack.
#define KEEP(pointer) __asm__ volatile("" : : "r"(pointer) : "memory")

static void *kept[400000];
static size_t count;
static void *keep(void *pointer) {
    CHECK(pointer != NULL);
    return kept[count++] = pointer;
}

SITE void *site_small(void) { void *p = malloc(48); KEEP(p); return p; }
SITE void *site_middle(void) { void *p = malloc(5000); KEEP(p); return p; }
SITE void *site_large(void) { void *p = malloc(300000); KEEP(p); return p; }
SITE void *site_huge(void) { void *p = calloc(40, 1 << 20); KEEP(p); return p; }
SITE void *site_zeroed(void) { void *p = calloc(10, 100); KEEP(p); return p; }
SITE void *site_aligned(void) { void *p = aligned_alloc(256, 1024); KEEP(p); return p; }
SITE void *site_grown(void *old, size_t size) { void *p = realloc(old, size); KEEP(p); return p; }
SITE void *site_thread(void) { void *p = malloc(200); KEEP(p); return p; }
SITE void *site_child(void) { void *p = malloc(2000); KEEP(p); return p; }
SITE void *site_handler(void) { void *p = malloc(700); KEEP(p); return p; }

// What a site has allocated and left, as the program itself counts.
static void tell(const char *site, size_t allocated, size_t live) { printf("%s %zu %zu\n", site, allocated, live); }

static void sites(void) {
    for (int i = 0; i < 30000; i++) memset(keep(site_small()), 1, 48);
    tell("site_small", 30000 * 48, 30000 * 48);
    for (int i = 0; i < 3000; i++) memset(keep(site_middle()), 2, 5000);
    for (int i = 0; i < 7000; i++) free(site_middle());
    tell("site_middle", 10000 * 5000, 3000 * 5000);
    for (int i = 0; i < 40; i++) memset(keep(site_large()), 3, 300000);
    for (int i = 0; i < 60; i++) free(site_large());
    tell("site_large", 100 * 300000, 40 * 300000);
    char *huge = keep(site_huge());
    for (size_t i = 0; i < 40 << 20; i += 4096) CHECK(huge[i] == 0);
    tell("site_huge", 40 << 20, 40 << 20);
    for (int i = 0; i < 5000; i++) {
        // What was used before, and by whom it was, must not show.
        char *zeroed = keep(site_zeroed());
        for (int at = 0; at < 1000; at++) CHECK(zeroed[at] == 0);
        memset(zeroed, 4, 1000);
    }
    tell("site_zeroed", 5000 * 1000, 5000 * 1000);
    for (int i = 0; i < 5000; i++) {
        char *aligned = keep(site_aligned());
        CHECK((uintptr_t)aligned % 256 == 0);
        CHECK(malloc_usable_size(aligned) >= 1024);
        memset(aligned, 5, 1024);
    }
    tell("site_aligned", 5000 * 1024, 5000 * 1024);
    // Every step moves, or is counted as if it did: 1, 2, 4 … 128 KiB.
    size_t sum = 0;
    for (int i = 0; i < 100; i++) {
        unsigned char *grown = NULL;
        for (size_t size = 1024; size <= 128 << 10; size *= 2) {
            grown = site_grown(grown, size);
            CHECK(size == 1024 || (grown[0] == 7 && grown[size / 2 - 1] == 7));
            memset(grown, 7, size);
            sum += size;
        }
        keep(grown);
    }
    tell("site_grown", sum, 100 * (128 << 10));
    // Double and foreign frees are seen with samples as without.
    for (size_t i = 0; i < count; i++) CHECK(malloc_usable_size(kept[i]) >= 48);
}

static void *thread(void *into) {
    void **slots = into;
    for (int i = 0; i < 10000; i++) memset(slots[i] = site_thread(), 8, 200);
    return NULL;
}

static void threads(void) {
    static void *slots[4][10000];
    pthread_t ids[4];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) CHECK(pthread_create(&ids[i], NULL, thread, slots[i]) == 0);
        for (int i = 0; i < 4; i++) CHECK(pthread_join(ids[i], NULL) == 0);
        // Freed by another thread than asked for it; the last round stays.
        for (int i = 0; round < 2 && i < 4; i++)
            for (int at = 0; at < 10000; at++) free(slots[i][at]);
    }
    tell("site_thread", 3 * 4 * 10000 * 200, 4 * 10000 * 200);
}

static void handler(int signal) {
    (void)signal;
    for (int i = 0; i < 2000; i++) keep(site_handler());
}

static void handlers(int alternate) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = alternate ? SA_ONSTACK : 0};
    stack_t stack = {.ss_sp = malloc(256 << 10), .ss_size = 256 << 10};
    CHECK(sigaltstack(&stack, NULL) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(raise(SIGUSR1) == 0);
    tell("site_handler", 2000 * 700, 2000 * 700);
}

// Ends when its input does.
static void wait_for_input(void) {
    char byte;
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
}

static void forks(void) {
    for (int i = 0; i < 2000; i++) keep(site_middle());
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        // Some of the parent's, which are no samples here.
        for (size_t i = 0; i < count; i++) free(kept[i]);
        for (int i = 0; i < 2000; i++) kept[i] = site_child();
        for (int i = 0; i < 1000; i++) free(kept[i]);
        printf("child %d\n", (int)getpid());
        wait_for_input();
        exit(0);
    }
    wait_for_input();
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "sites";
    if (strcmp(what, "sites") == 0) sites();
    if (strcmp(what, "threads") == 0) threads();
    if (strcmp(what, "handler") == 0) handlers(0);
    if (strcmp(what, "alternate") == 0) handlers(1);
    if (strcmp(what, "fork") == 0) forks();
    if (strcmp(what, "wait") == 0) { sites(); wait_for_input(); }
    // Allocates as often as it is told to, a line each.
    if (strcmp(what, "ask") == 0) {
        char byte;
        printf("ready\n");
        fflush(stdout);
        while (read(0, &byte, 1) > 0) {
            if (byte != '\n') continue;
            for (int i = 0; i < 2000; i++) keep(site_middle());
            printf("done\n");
            fflush(stdout);
        }
    }
    if (strcmp(what, "kill") == 0) { sites(); fflush(stdout); raise(SIGKILL); }
    // Becomes another program, on Allotment, which allocates nothing, or not.
    if (strcmp(what, "exec") == 0) { sites(); fflush(stdout); execl(argv[0], argv[0], "none", NULL); }
    if (strcmp(what, "leave") == 0) { char *none[] = {NULL}; sites(); fflush(stdout); execle("/bin/true", "true", NULL, none); }
    if (strcmp(what, "twice") == 0) { void *p = site_middle(); free(p); free(p); }
    return 0;
}
