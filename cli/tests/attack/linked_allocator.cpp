// about: the program's own allocator (as jemalloc) has a new that takes from its heap and a delete that calls free: ours was given what is not ours
// library
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#ifdef LIB
alignas(4096) static char heap[256 << 20];
static std::size_t at = 64;
static void *take(std::size_t size, std::size_t align = 16)
{
    std::size_t begin = (at + 16 + align - 1) & -align;
    if (size > sizeof heap - begin) {
        errno = ENOMEM;
        return nullptr;
    }
    at = begin + size;
    std::memcpy(heap + begin - 8, &size, 8);
    return heap + begin;
}
static std::size_t size_of(void *block)
{
    std::size_t size;
    std::memcpy(&size, static_cast<char *>(block) - 8, 8);
    return size;
}
extern "C" {
void *malloc(std::size_t size) { return take(size); }
void *calloc(std::size_t count, std::size_t size) { return take(count * size); }
void *realloc(void *block, std::size_t size)
{
    void *made = take(size);
    if (block && made)
        std::memcpy(made, block, size_of(block) < size ? size_of(block) : size);
    return made;
}
void *memalign(std::size_t align, std::size_t size) { return take(size, align); }
void *aligned_alloc(std::size_t align, std::size_t size) { return take(size, align); }
int posix_memalign(void **out, std::size_t align, std::size_t size) { return (*out = take(size, align)) ? 0 : ENOMEM; }
void free(void *) { }
}
void *operator new(std::size_t size)
{
    for (;;) {
        if (void *block = take(size))
            return block;
        if (std::new_handler handler = std::get_new_handler())
            handler();
        else
            throw std::bad_alloc();
    }
}
void *operator new[](std::size_t size) { return operator new(size); }
void operator delete(void *block) noexcept { std::free(block); }
void operator delete[](void *block) noexcept { std::free(block); }
void operator delete(void *block, std::size_t) noexcept { std::free(block); }
void operator delete[](void *block, std::size_t) noexcept { std::free(block); }
#else
struct alignas(64) Wide {
    char bytes[100];
};
int main()
{
    std::vector<std::string> texts;
    for (int i = 0; i < 5000; i++)
        texts.push_back(std::string(20 + i % 3000, 'a' + i % 26));
    long sum = 0;
    for (auto &text : texts)
        sum += text.size() + text[7];
    texts.clear();
    delete new Wide;
    delete[] new Wide[3];
    // What nobody has is refused as C++ has it, with the handler asked before.
    static int asked;
    std::set_new_handler([] { if (++asked == 2) std::set_new_handler(nullptr); });
    volatile std::size_t much = SIZE_MAX / 4;
    try {
        ::operator delete(::operator new(much));
    } catch (std::bad_alloc &) {
        std::printf("%ld, refused, asked %d times\n", sum, asked);
    }
    try {
        throw std::string("thrown");
    } catch (std::string &what) {
        std::puts(what.c_str());
    }
}
#endif
