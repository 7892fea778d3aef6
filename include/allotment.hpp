/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * allotment.hpp: Allotment's pages and areas for C++17's containers; allotment.h has the rest.
 *
 *   bytes                                    from
 *   below 4,096                              operator new
 *   2^n pages, n = 0-3 or 9 (4-32 KiB, 2 MiB)  blocks of pages: a sequence and a store
 *   others                                   areas: whole pages
 *
 *   std::vector<int, allotment::allocator<int>> numbers;
 *
 *   allotment::resource pages;
 *   std::pmr::monotonic_buffer_resource arena(1 << 20, &pages);
 *
 * Whatever malloc the program uses, larger blocks come from Allotment's heap, which gives back what is free. Where a block
 * came from is told by its size and alignment, so that nothing is written beside it: it is given back with those that it
 * was asked for with, as the standard demands. What is given back and was not allocated ends the program.
 */
#ifndef ALLOTMENT_HPP
#define ALLOTMENT_HPP

#include <allotment.h>

#include <cstddef>
#include <exception>
#include <limits>
#include <memory_resource>
#include <new>

namespace allotment {

namespace detail {

constexpr std::size_t page = 4096;

/* The order of a block with a list on each CPU, -1 if there is none of that size. */
inline int order(std::size_t bytes, std::size_t alignment) noexcept {
    if (alignment > bytes) return -1;
    for (int order : {0, 1, 2, 3, 9})
        if (bytes == page << order) return order;
    return -1;
}

/* Whether it is operator new's. */
inline bool is_small(std::size_t bytes, std::size_t alignment) noexcept {
    return bytes < page && alignment <= page;
}

} // namespace detail

/* Bytes at an alignment (a power of two). Throws std::bad_alloc without memory. */
[[nodiscard]] inline void *allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
    if (detail::is_small(bytes, alignment)) return ::operator new(bytes, std::align_val_t(alignment));
    const int order = detail::order(bytes, alignment);
    void *block = order >= 0 ? allotment_pages_alloc(static_cast<unsigned>(order), -1, 0) : allotment_area_alloc(bytes, alignment, 0);
    if (block == nullptr) throw std::bad_alloc();
    return block;
}

/* Gives back what allocate returned for the same size and alignment. */
inline void deallocate(void *block, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) noexcept {
    if (detail::is_small(bytes, alignment)) return ::operator delete(block, std::align_val_t(alignment));
    const bool is_block = detail::order(bytes, alignment) >= 0;
    if ((is_block ? allotment_pages_free(block) : allotment_area_free(block)) != 0) std::terminate();
}

namespace detail {
/* Whether another resource is of the same kind: all of a kind are equal. (Without RTTI: is the same.) */
template <typename Resource> bool is_like(const Resource &self, const std::pmr::memory_resource &other) noexcept {
#ifdef __cpp_rtti
    return &self == &other || dynamic_cast<const Resource *>(&other) != nullptr;
#else
    return &self == &other;
#endif
}
} // namespace detail

/* For the allocators of std::pmr. All are the same heap. */
class resource : public std::pmr::memory_resource {
    void *do_allocate(std::size_t bytes, std::size_t alignment) override { return allotment::allocate(bytes, alignment); }
    void do_deallocate(void *block, std::size_t bytes, std::size_t alignment) override {
        allotment::deallocate(block, bytes, alignment);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        return detail::is_like(*this, other);
    }
};

/* Every block an area of its own with a page behind its last where every access faults (Linux 6.13 or newer): for what may
 * run over, and for finding what does. */
class guarded_resource : public std::pmr::memory_resource {
    void *do_allocate(std::size_t bytes, std::size_t alignment) override {
        void *area = allotment_area_alloc(bytes, alignment, ALLOTMENT_AREA_GUARD);
        if (area == nullptr) throw std::bad_alloc();
        return area;
    }
    void do_deallocate(void *area, std::size_t, std::size_t) override {
        if (allotment_area_free(area) != 0) std::terminate();
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        return detail::is_like(*this, other);
    }
};

/* For the containers of std. */
template <class T> struct allocator {
    using value_type = T;

    allocator() noexcept = default;
    template <class U> allocator(const allocator<U> &) noexcept {}

    [[nodiscard]] T *allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
        return static_cast<T *>(allotment::allocate(count * sizeof(T), alignof(T)));
    }
    void deallocate(T *block, std::size_t count) noexcept { allotment::deallocate(block, count * sizeof(T), alignof(T)); }
};

template <class T, class U> bool operator==(const allocator<T> &, const allocator<U> &) noexcept { return true; }
template <class T, class U> bool operator!=(const allocator<T> &, const allocator<U> &) noexcept { return false; }

} // namespace allotment

#endif
