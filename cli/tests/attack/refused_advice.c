// about: under a limit, where a filter refuses madvise, what large blocks had been served no small ones
#include "../c/check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { LIMIT = 50 << 20, LEAST = 22 << 20, MOST = 1000000 };

static void refuse_madvise(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
}

int main(void)
{
    static const size_t sizes[] = {65536, 1000, 65536, 5000, 1000000, 64, 40000, 20000, 300000};
    static char *block[MOST];
    struct rlimit limit = {LIMIT, LIMIT};
    free(malloc(100));
    CHECK(!setrlimit(RLIMIT_DATA, &limit));
    refuse_madvise();
    for (unsigned round = 0; round < sizeof sizes / sizeof *sizes; round++) {
        size_t bytes = sizes[round], count = 0;
        while (count < MOST && (block[count] = malloc(bytes))) {
            memset(block[count], (char)count, bytes);
            count++;
        }
        CHECK(count * bytes >= LEAST, "%zu MiB of %zu bytes", count * bytes >> 20, bytes);
        for (size_t at = 0; at < count; at++) {
            for (size_t byte = 0; byte < bytes; byte += 500)
                CHECK(block[at][byte] == (char)at);
            free(block[at]);
        }
    }
    puts("ok");
}
