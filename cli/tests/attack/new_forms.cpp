// about: every form of new without memory: the handler is asked as often, and the same is thrown, through our frame
// flags: -std=c++17
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <new>
#include <thread>

static int asked;
static void ask()
{
    if (++asked == 3)
        throw std::bad_alloc();
}

template <class Make> static void tell(const char *what, Make make)
{
    for (bool handled : {false, true}) {
        asked = 0;
        std::set_new_handler(handled ? ask : nullptr);
        try {
            printf("%s: %s", what, make() ? "a block" : "null");
        } catch (const std::bad_alloc &) {
            printf("%s: thrown", what);
        }
        printf(", asked %d\n", asked);
    }
    std::set_new_handler(nullptr);
}

static void all()
{
    volatile std::size_t huge = std::size_t{1} << 62;
    const auto to = std::align_val_t{64};
    tell("new", [&] { return ::operator new(huge); });
    tell("new[]", [&] { return ::operator new[](huge); });
    tell("nothrow", [&] { return ::operator new(huge, std::nothrow); });
    tell("nothrow[]", [&] { return ::operator new[](huge, std::nothrow); });
    tell("aligned", [&] { return ::operator new(huge, to); });
    tell("aligned[]", [&] { return ::operator new[](huge, to); });
    tell("aligned nothrow", [&] { return ::operator new(huge, to, std::nothrow); });
    tell("aligned nothrow[]", [&] { return ::operator new[](huge, to, std::nothrow); });
    /* What a handler finds serves. */
    static void *reserve = std::malloc(100);
    std::set_new_handler([] { std::free(reserve), reserve = nullptr, std::set_new_handler(nullptr); });
    try {
        ::operator new(huge);
    } catch (const std::bad_alloc &) {
        puts("gave up its reserve");
    }
    for (std::size_t size : {0, 1, 48, 5000, 40000, 3 << 20}) {
        ::operator delete(::operator new(size), size);
        ::operator delete[](::operator new[](size));
        ::operator delete(::operator new(size, to), to);
        ::operator delete[](::operator new[](size, to), size, to);
        ::operator delete(::operator new(size, std::nothrow), std::nothrow);
        /* As programs do that know their library. */
        std::free(::operator new(size));
    }
}

int main()
{
    all();
    std::thread(all).join();
    puts("ok");
}
