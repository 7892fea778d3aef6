/* Pages from C and C++: include/allotment.h. */
#include "api.h"

enum { THREADS = 4, ROUNDS = 3000, BULK = 5000 };

static void *use(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        unsigned order = (unsigned)i % 4;
        uintptr_t *block = (uintptr_t *)allotment_pages_alloc(order, -1, i % 7 ? 0 : ALLOTMENT_PAGES_ZERO);
        CHECK(block && (uintptr_t)block % (4096u << order) == 0);
        CHECK(i % 7 || (block[0] == 0 && block[511] == 0));
        block[0] = (uintptr_t)&block;
        CHECK(block[0] == (uintptr_t)&block);
        CHECK(allotment_pages_free(block) == 0);
    }
    return unused;
}

int main(void)
{
    errno = 0;
    CHECK(!allotment_pages_alloc(ALLOTMENT_PAGES_ORDER_MAX + 1, -1, 0) && errno == EINVAL);
    errno = 0;
    CHECK(!allotment_pages_alloc(0, 1000, 0) && errno == EINVAL);
    errno = 0;
    CHECK(!allotment_pages_alloc(0, -1, 8) && errno == EINVAL);
    errno = 0;
    CHECK(!allotment_pages_alloc(0, -2, 0) && errno == EINVAL);

    for (unsigned order = 0; order <= ALLOTMENT_PAGES_ORDER_MAX; order++) {
        size_t size = (size_t)4096 << order;
        unsigned char *block = (unsigned char *)allotment_pages_alloc(order, 0, ALLOTMENT_PAGES_ZERO);
        CHECK(block && (uintptr_t)block % size == 0 && block[0] == 0 && block[size - 1] == 0);
        memset(block, 0xff, size);
        errno = 0;
        CHECK(allotment_pages_free(block + 16) == -1 && errno == EINVAL);
        CHECK(allotment_pages_free(block) == 0);
        errno = 0;
        CHECK(allotment_pages_free(block) == -1 && errno == EINVAL);
    }
    void *other = malloc(10000);
    CHECK(allotment_pages_free(other) == -1 && allotment_pages_free(&other) == -1);
    free(other);
    CHECK(allotment_pages_free(NULL) == 0);

    TOGETHER(THREADS, use);

    static void *blocks[BULK];
    CHECK(allotment_pages_alloc_bulk(0, -1, 0, blocks, BULK) == BULK);
    for (int i = 0; i < BULK; i++)
        *(int *)blocks[i] = i;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < BULK; i++)
            CHECK(*(int *)blocks[i] == i);
        CHECK(allotment_pages_free_bulk(blocks, BULK) == 0);
        _exit(allotment_pages_alloc(3, -1, 0) ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < BULK; i++)
        CHECK(*(int *)blocks[i] == i);
    CHECK(allotment_pages_free_bulk(blocks, BULK) == 0);
    CHECK(allotment_pages_free_bulk(blocks, BULK) == -1);
    CHECK(allotment_pages_alloc_bulk(11, -1, 0, blocks, BULK) == 0);

    char text[8];
    size_t all = allotment_buddyinfo(text, sizeof text);
    CHECK(all > sizeof text && strcmp(text, "Node 0,") == 0);
    all = allotment_zoneinfo(NULL, 0);
    char *info = (char *)malloc(all + 4096);
    CHECK(info && allotment_zoneinfo(info, all + 4096) >= all);
    CHECK(strstr(info, "pagesets") && strstr(info, "        managed  "));
    free(info);
    puts("fine");
    return 0;
}
