/* What programs of the public header check with: C and C++, nothing but allotment.h and the C library. */
#ifndef API_H
#define API_H
#include <allotment.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Does `use` in so many threads at once, and waits for them. */
#define TOGETHER(threads, use)                                                                                         \
    do {                                                                                                               \
        pthread_t together[threads];                                                                                   \
        for (int i = 0; i < (threads); i++)                                                                            \
            CHECK(pthread_create(&together[i], NULL, use, NULL) == 0);                                                 \
        for (int i = 0; i < (threads); i++)                                                                            \
            CHECK(pthread_join(together[i], NULL) == 0);                                                               \
    } while (0)
#endif
