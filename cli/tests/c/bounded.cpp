// Under a hard limit of 64 MiB (knob hard_limit): new throws, nothrow does not, containers survive.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);        \
            std::exit(1);                                                                       \
        }                                                                                       \
    } while (0)

struct alignas(256) Wide { char bytes[100000]; };

static void *volatile opaque; // what the compiler may not leave out

template <class Take> static bool throws(Take take)
{
    try {
        take();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

int main()
{
    const std::string x(1000, 'x'), y(1 << 20, 'y');
    for (int round = 0; round < 3; round++) {
        std::vector<std::unique_ptr<std::string>> small;
        std::vector<std::unique_ptr<Wide>> wide;
        CHECK(throws([&] { for (;;) wide.emplace_back(new Wide), std::memset(wide.back()->bytes, round, sizeof(Wide)); }));
        CHECK(wide.size() * sizeof(Wide) > (48u << 20) && wide.size() * sizeof(Wide) < (64u << 20));
        CHECK(throws([] { opaque = ::operator new[](1 << 20); }));
        CHECK(!(opaque = new (std::nothrow) Wide));
        CHECK(!(opaque = ::operator new(8 << 20, std::align_val_t(4096), std::nothrow)));
        for (auto &one : wide)
            CHECK(one->bytes[0] == round && one->bytes[99999] == round);
        wide.resize(wide.size() / 2);
        std::string text(y);
        CHECK(throws([&] { for (;;) small.emplace_back(new std::string(x)); }));
        CHECK(small.size() > 20000 && *small.front() == x && *small.back() == x);
        CHECK(throws([&] { text.resize(16 << 20, 'z'); }));
        CHECK(text == y);
    }
    std::puts("ok");
}
