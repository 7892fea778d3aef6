// about: fork beside threads that look up users and hosts: the C library takes the lock of its name services after the handlers
#include "../c/check.h"
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <sys/wait.h>

static void *looks_up(void *which)
{
    for (;;) {
        char text[4096];
        struct passwd user, *found;
        if (which)
            getpwnam_r("nobody", &user, text, sizeof text, &found);
        else {
            struct addrinfo *list = NULL;
            if (!getaddrinfo("localhost", "80", NULL, &list))
                freeaddrinfo(list);
        }
    }
}

int main(void)
{
    pthread_t thread;
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(!pthread_create(&thread, NULL, looks_up, (void *)(i % 2)));
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (!child) {
            for (int at = 0; at < 100; at++)
                free(malloc(at * 100));
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && !status, "status %#x", status);
    }
    say("ok\n");
    _exit(0);
}
