// Built without frame pointers, optimised and stripped: what unwind tables alone say.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#define SITE __attribute__((noinline))

namespace shop {
struct Shelf {
    std::vector<std::unique_ptr<std::string>> goods;
    SITE void fill(int count);
};
SITE void Shelf::fill(int count) {
    for (int i = 0; i < count; i++) goods.push_back(std::make_unique<std::string>(1000, 'x'));
}
SITE int deep(Shelf &shelf, int levels) {
    volatile char room[300];
    room[levels] = 1;
    if (levels > 0) return deep(shelf, levels - 1) + room[levels];
    shelf.fill(20000);
    return room[0];
}
} // namespace shop

int main() {
    // Never taken down.
    shop::Shelf *shelf = new shop::Shelf;
    int levels = shop::deep(*shelf, 20);
    std::printf("%d %zu\n", levels, shelf->goods.size());
    return 0;
}
