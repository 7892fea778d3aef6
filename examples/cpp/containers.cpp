// Containers on Allotment's pages and areas, while the program's malloc stays what it was.
#include <allotment.hpp>

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory_resource>
#include <numeric>
#include <string>
#include <vector>

namespace {

bool check(bool is_good, const char *what) {
    if (!is_good) std::printf("wrong: %s\n", what);
    return is_good;
}

bool is_aligned(const void *block, std::size_t alignment) { return reinterpret_cast<std::uintptr_t>(block) % alignment == 0; }

} // namespace

int main() {
    bool is_good = true;

    // A vector that grows through operator new, blocks of pages, and areas.
    std::vector<std::uint64_t, allotment::allocator<std::uint64_t>> numbers;
    for (std::uint64_t i = 0; i < 1000000; i++) numbers.push_back(i);
    is_good &= check(std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0}) == 499999500000, "the vector's sum");
    const auto copy = numbers;
    is_good &= check(copy == numbers && is_aligned(copy.data(), 4096), "the vector's copy");

    // An arena whose chunks are areas: all gone at once, and reused at once.
    allotment::resource heap;
    {
        std::pmr::monotonic_buffer_resource arena(1 << 20, &heap);
        std::pmr::map<int, std::pmr::string> names(&arena);
        for (int i = 0; i < 10000; i++) names.emplace(i, "a name that is too long for the string itself");
        is_good &= check(names.size() == 10000 && names.at(77).size() == 45, "the map");
    }

    // Every size around the borders, at every alignment.
    for (std::size_t bytes : {1, 4095, 4096, 4097, 8192, 12288, 16384, 32768, 32769, 2097152, 5000000})
        for (std::size_t alignment : {1, 16, 64, 4096, 65536}) {
            void *block = heap.allocate(bytes, alignment);
            is_good &= check(is_aligned(block, alignment), "an alignment");
            static_cast<char *>(block)[0] = static_cast<char *>(block)[bytes - 1] = 1;
            heap.deallocate(block, bytes, alignment);
        }
    allotment::resource other;
    is_good &= check(heap.is_equal(other) && !heap.is_equal(*std::pmr::new_delete_resource()), "equality");
    std::printf("%zu numbers, %s\n", numbers.size(), is_good ? "all right" : "wrong");
    return is_good ? 0 : 1;
}
