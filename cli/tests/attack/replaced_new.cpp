// about: a program that replaces only the plain forms of new and delete, as before C++14: the library's sized delete took its blocks
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

static std::atomic<long> made, gone, wrong;

/* A header before each block, as programs have that count their memory. */
void *operator new(std::size_t size)
{
    auto *head = static_cast<std::uint64_t *>(std::malloc(size + 16));
    if (!head)
        throw std::bad_alloc();
    head[0] = 0x5eed;
    made++;
    return head + 2;
}

void operator delete(void *block) noexcept
{
    if (!block)
        return;
    auto *head = static_cast<std::uint64_t *>(block) - 2;
    wrong += head[0] != 0x5eed;
    head[0] = 0;
    gone++;
    std::free(head);
}

struct Large {
    char bytes[5000];
    virtual ~Large() {}
};

int main()
{
    for (int round = 0; round < 100; round++) {
        std::vector<std::string> words;
        for (int i = 0; i < 100; i++)
            words.push_back(std::string(i, 'x'));
        delete new Large;
        delete[] new Large[3];
        delete new int;
    }
    printf("%ld made, %ld left, %ld wrong\n", made.load(), made.load() - gone.load(), wrong.load());
}
