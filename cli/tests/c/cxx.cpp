// What C++ asks of the heap: every new with its delete, sizes and alignments
// given and not, bad_alloc, and the containers. Passes on plain glibc.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);        \
            std::exit(1);                                                                       \
        }                                                                                       \
    } while (0)

static volatile std::size_t opaque;
static std::size_t hide(std::size_t size) { opaque = size; return opaque; }

static const std::size_t sizes[] = {0, 1, 8, 24, 100, 1000, 5000, 33000, 100000, 3 << 20};

static bool aligned(const void *block, std::size_t align)
{
    return block && reinterpret_cast<std::uintptr_t>(block) % align == 0;
}

static void plain()
{
    for (std::size_t size : sizes) {
        void *one = ::operator new(size), *many = ::operator new[](size);
        CHECK(aligned(one, 16) && aligned(many, 16) && one != many);
        std::memset(one, 1, size), std::memset(many, 2, size);
        ::operator delete(one), ::operator delete[](many);
        one = ::operator new(size), many = ::operator new[](size);
        ::operator delete(one, size), ::operator delete[](many, size);
        one = ::operator new(size, std::nothrow), many = ::operator new[](size, std::nothrow);
        CHECK(one && many);
        ::operator delete(one, std::nothrow), ::operator delete[](many, std::nothrow);
    }
    ::operator delete(nullptr), ::operator delete[](nullptr), ::operator delete(nullptr, hide(10));
}

static void over_aligned()
{
    for (std::size_t align : {std::size_t{16}, std::size_t{64}, std::size_t{4096}, std::size_t{1} << 21})
        for (std::size_t size : sizes) {
            auto to = std::align_val_t{align};
            void *one = ::operator new(size, to), *many = ::operator new[](size, to);
            CHECK(aligned(one, align) && aligned(many, align) && one != many);
            std::memset(one, 1, size), std::memset(many, 2, size);
            ::operator delete(one, to), ::operator delete[](many, to);
            one = ::operator new(size, to), many = ::operator new[](size, to);
            ::operator delete(one, size, to), ::operator delete[](many, size, to);
            one = ::operator new(size, to, std::nothrow), many = ::operator new[](size, to, std::nothrow);
            CHECK(aligned(one, align) && aligned(many, align));
            ::operator delete(one, to, std::nothrow), ::operator delete[](many, to, std::nothrow);
        }
    struct alignas(256) Wide { char bytes[300]; };
    auto wide = std::make_unique<Wide[]>(7);
    CHECK(aligned(wide.get(), 256));
    std::vector<Wide> row(33);
    CHECK(aligned(row.data(), 256));
}

static void out_of_memory()
{
    int caught = 0;
    try { ::operator delete(::operator new(hide(SIZE_MAX - 100))); } catch (const std::bad_alloc &) { caught++; }
    try { ::operator delete[](::operator new[](hide(std::size_t{1} << 47))); } catch (const std::bad_alloc &) { caught++; }
    try { ::operator delete(::operator new(hide(SIZE_MAX / 2), std::align_val_t{64}), std::align_val_t{64}); } catch (const std::bad_alloc &) { caught++; }
    // More than any machine has; if it is given all the same, nobody touches it.
    try { std::vector<char>().reserve(hide(std::size_t{1} << 46)); } catch (const std::bad_alloc &) { caught++; }
    CHECK(caught == 4);
    CHECK(::operator new(hide(SIZE_MAX - 100), std::nothrow) == nullptr);
    CHECK(::operator new(hide(SIZE_MAX - 100), std::align_val_t{64}, std::nothrow) == nullptr);
    static int asked;
    asked = 0;
    std::set_new_handler([] { if (++asked == 3) std::set_new_handler(nullptr); });
    try { ::operator delete(::operator new(hide(SIZE_MAX - 100))); } catch (const std::bad_alloc &) { asked += 10; }
    CHECK(asked == 13);
}

static void containers(unsigned seed)
{
    std::map<std::string, std::vector<int>> table;
    std::unordered_map<int, std::string> names;
    std::uint64_t state = seed, sum = 0, expected = 0;
    for (int round = 0; round < 60000; round++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int key = static_cast<int>(state >> 40) % 2000;
        auto &row = table["key " + std::string(static_cast<std::size_t>(key % 60), 'k') + std::to_string(key)];
        row.push_back(round);
        expected += static_cast<std::uint64_t>(round);
        names[key] = std::string(static_cast<std::size_t>(key), 'n');
        if (key % 3 == 0)
            names.erase(key / 2);
        if (key % 7 == 0) {
            for (int value : row)
                expected -= static_cast<std::uint64_t>(value);
            table.erase("key " + std::string(static_cast<std::size_t>(key % 60), 'k') + std::to_string(key));
        }
    }
    for (auto &[key, row] : table)
        for (int value : row)
            sum += static_cast<std::uint64_t>(value);
    CHECK(sum == expected);
    for (auto &[key, name] : names)
        CHECK(name.size() == static_cast<std::size_t>(key));
}

// Constructed before main, destroyed after it, as is the thread's own.
static std::map<int, std::string> early{{1, std::string(1000, 'e')}, {2, std::string(100000, 'f')}};
struct Late { std::string text = std::string(50000, 'l'); ~Late() { auto more = text + text; CHECK(more.size() == 100000); } };
static thread_local Late late;
static Late last;

int main()
{
    plain();
    over_aligned();
    out_of_memory();
    std::vector<std::thread> threads;
    for (unsigned at = 0; at < 4; at++)
        threads.emplace_back([at] { CHECK(late.text.size() == 50000); containers(at); });
    for (auto &thread : threads)
        thread.join();
    CHECK(late.text.size() == 50000 && early[2].size() == 100000);
    try { throw std::string("unwound"); } catch (const std::string &text) { CHECK(text == "unwound"); }
    std::puts("ok cxx");
}
