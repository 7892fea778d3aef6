// about: a program protects, advises and locks pages of its own blocks, faults in them, and frees them as it got them
#include "../c/check.h"
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>

static char *guarded;
static volatile sig_atomic_t faults;

static void handler(int signal, siginfo_t *info, void *context)
{
    CHECK((char *)info->si_addr >= guarded && (char *)info->si_addr < guarded + 8192, "%p", info->si_addr);
    faults++;
    mprotect(guarded, 8192, PROT_READ | PROT_WRITE);
}

int main(void)
{
    static Held held;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    for (int i = 0; i < 300; i++) {
        size_t size = (size_t)8192 << i % 8;
        guarded = aligned_alloc(4096, size);
        memset(guarded, 1, size);
        churn(&held, 50);
        CHECK(!mprotect(guarded, 8192, i % 2 ? PROT_NONE : PROT_READ));
        churn(&held, 50);
        if (i % 50 == 0)
            malloc_trim(0);
        guarded[5000] = 2;
        CHECK(guarded[5000] == 2 && guarded[0] == 1);
        mlock(guarded, 4096);
        munlock(guarded, 4096);
        madvise(guarded, 4096, MADV_DONTNEED);
        CHECK(guarded[0] == 0 && guarded[4096] == 1);
        madvise(guarded, 8192, MADV_DONTFORK);
        pid_t child = i % 30 ? 0 : fork();
        if (i % 30 == 0 && !child)
            _exit(0);
        if (child)
            waitpid(child, NULL, 0);
        madvise(guarded, 8192, MADV_DOFORK);
        free(guarded);
    }
    churn_end(&held);
    printf("%d faults\n", (int)faults);
}
