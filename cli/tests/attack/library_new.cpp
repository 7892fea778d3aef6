// about: a library of the program's brings its own operators: ours, seen before them, took what a hidden delete of its gave back
// library
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

long made(), kept();

#ifdef LIB
static long blocks, left;
long made() { return blocks; }
long kept() { return left; }
void *operator new(std::size_t size)
{
    auto *head = static_cast<std::size_t *>(std::malloc(size + 16));
    if (!head)
        throw std::bad_alloc();
    head[0] = 0x5eed;
    blocks++, left++;
    return head + 2;
}
void operator delete(void *block) noexcept
{
    if (!block)
        return;
    auto *head = static_cast<std::size_t *>(block) - 2;
    left -= head[0] == 0x5eed;
    std::free(head);
}
void operator delete(void *block, std::size_t) noexcept { operator delete(block); }
#else
int main()
{
    {
        std::vector<std::string> words;
        for (int i = 0; i < 1000; i++)
            words.push_back(std::string(i, 'x'));
        delete new int;
        delete[] new std::string[3];
    }
    printf("%ld made, %ld left\n", made(), kept());
}
#endif
