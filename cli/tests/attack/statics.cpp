// about: objects with static and thread storage allocate when they are made and when they are destroyed, while detached threads run on; exceptions without memory
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Holder {
    std::map<int, std::string> map;
    const char *name;
    explicit Holder(const char *name) : name(name)
    {
        for (int i = 0; i < 1000; i++)
            map[i] = std::string(i, 'x');
    }
    ~Holder()
    {
        for (int i = 0; i < 1000; i++)
            if (map[i] != std::string(i, 'x'))
                abort();
        map.clear();
        std::vector<std::string> more(1000, std::string(100, 'y'));
        if (name)
            puts(name);
    }
};

static Holder first("first");
thread_local Holder own(nullptr);
static Holder second("second");

static void works(int depth)
{
    std::vector<char> block(100 + depth * 1000, 'z');
    if (depth == 0)
        throw std::runtime_error("thrown");
    works(depth - 1);
}

int main()
{
    for (int round = 0; round < 4; round++) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++)
            threads.emplace_back([] {
                own.map[3] = "xxx";
                for (int i = 0; i < 50; i++)
                    try {
                        works(20);
                    } catch (const std::runtime_error &error) {
                        if (error.what() != std::string("thrown"))
                            abort();
                    }
            });
        for (auto &thread : threads)
            thread.join();
    }
    try {
        volatile std::size_t much = ~std::size_t{0} / 3;
        char *block = new char[much];
        printf("%p\n", block);
    } catch (const std::bad_alloc &) {
        puts("bad_alloc");
    }
    for (int i = 0; i < 2; i++)
        std::thread([] {
            for (;;)
                free(malloc(rand() % 5000));
        }).detach();
    return 3;
}
