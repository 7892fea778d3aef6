/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * allotment.h: Allotment's parts for programs in C (C11) and C++ (C++17).
 *
 * Counters that many CPUs change. An update is one restartable sequence on
 * memory of this CPU's own: no locked instruction, no shared cache line, safe
 * against preemption, migration and signals. Where the kernel or the C library
 * has no restartable sequences, locked operations on the same memory serve
 * (allotment_counter_mode says which).
 *
 *   family   an update                      a read
 *   event    this CPU's word, +n            the sum
 *   level    this CPU's byte, +-n; now and  one load with a stated error,
 *            then the shared total          or the sum
 *   quota    this CPU's stock, -n; now and  one load, or the sum
 *            then the shared total
 *
 * Units. Counters count whatever the program counts. An "index" is a CPU as the
 * kernel numbers those of one process (mm_cid), or a CPU's number; indices in
 * use: those that have counted anything so far. Costs are given in loads,
 * sequences (some 10-20 instructions, none locked), and system calls.
 *
 * Threads. Every function may be called by any thread at any time, but a
 * counter must be unused when it is freed. Functions marked AS-SAFE may be
 * called from signal handlers, also one that interrupted the same function.
 * What threads counted that have ended, or on CPUs that went away, stays.
 *
 * Errors. Constructors return NULL with errno = ENOMEM. Nothing else sets
 * errno, and nothing else fails unless it says so. Passing NULL is undefined
 * but for the _free functions, which ignore it.
 *
 * fork: the child has counters of its own with the parent's values. A spill of
 * a level counter that another thread was in the middle of is lost to the
 * child, whose error bound goes on to cover it. vfork: the child may not count.
 *
 * Memory. Neither the program's malloc nor Allotment's is used. A program that
 * makes no counter pays nothing but the mapping of this library. The first
 * counter reads two files of /sys and reserves 256 KiB of address space for
 * each possible CPU; only touched pages become resident. Make it before a filter
 * of system calls that kills: later ones need mmap, munmap, madvise and
 * membarrier only.
 *
 * Linking: pkg-config --cflags --libs allotment (docs/c.md).
 */
#ifndef ALLOTMENT_H
#define ALLOTMENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Event counters: what happened. Only go up. ------------------------- */

/* Opaque; the pointer is no address that may be read or written. */
typedef struct allotment_counter_event allotment_counter_event;

/* A counter at 0; NULL without memory. 8 bytes for each CPU. */
allotment_counter_event *allotment_counter_event_new(void);

/* Gives it back. A lock. */
void allotment_counter_event_free(allotment_counter_event *counter);

/* Counts n more (modulo 2^64). AS-SAFE. One sequence. */
void allotment_counter_event_add(allotment_counter_event *counter, uint64_t n);

/* The sum: exact if nobody counts meanwhile; else every add that returned
 * before the call is in it. AS-SAFE. No lock; a load for each index in use. */
uint64_t allotment_counter_event_sum(const allotment_counter_event *counter);

/* ---- Level counters: what there is. Go up and down. --------------------- */

typedef struct allotment_counter_level allotment_counter_level;

/* A counter at 0; NULL without memory. Each index keeps a difference of at most
 * `threshold` (1 to 125, clamped; 0: the kernel's formula, by CPUs and memory)
 * from the shared total: the larger, the rarer a shared access and the larger
 * the error. Range of the value: +-2^51. */
allotment_counter_level *allotment_counter_level_new(unsigned threshold);

/* Gives it back. A lock. */
void allotment_counter_level_free(allotment_counter_level *counter);

/* Counts delta up or down. AS-SAFE. One sequence; every 1.5 thresholds a spill:
 * two locked adds on the total and a second sequence. A delta beyond the
 * threshold is one locked add. */
void allotment_counter_level_add(allotment_counter_level *counter, int64_t delta);

/* The total: off by at most allotment_counter_level_error_bound, and negative
 * at times for that reason. AS-SAFE. One load. */
int64_t allotment_counter_level_approximate(const allotment_counter_level *counter);

/* By how much the approximate read may be off now: threshold * (indices in use
 * + 1), twice that once somebody has folded, and 1.5 * threshold for each
 * thread inside a spill. AS-SAFE. Four loads. */
uint64_t allotment_counter_level_error_bound(const allotment_counter_level *counter);

/* The sum. Exact if nobody counts meanwhile; else it may miss 1.5 thresholds
 * for each spill that overlaps with the call, and counts none twice, unless a
 * fold comes between in each of 8 tries: then it is off by that either way.
 * AS-SAFE. No lock; two loads for each index in use, 8 times that at most. */
int64_t allotment_counter_level_exact(const allotment_counter_level *counter);

/* -1: the counter is less than value, 1: it is greater, 0: the approximate
 * read and its bound do not decide. AS-SAFE. Four loads. */
int allotment_counter_level_compare(const allotment_counter_level *counter, int64_t value);

/* -1, 0 or 1: less, equal, greater; by the sum where the bound does not
 * decide. AS-SAFE. Four loads, or those of _exact besides. */
int allotment_counter_level_compare_exact(const allotment_counter_level *counter, int64_t value);

/* Brings the total up to date with every index, for who reads approximately;
 * 1 if that changed it, else 0. To be called by period, by anybody; folders
 * take turns, CPUs are not disturbed. A lock; two loads for each index. */
int allotment_counter_level_fold(allotment_counter_level *counter);

/* What was spilled by CPUs of a NUMA node so far, with the approximate read's
 * error; on a machine with one node, the total. One load. */
int64_t allotment_counter_level_node(const allotment_counter_level *counter, unsigned node);

/* The threshold. AS-SAFE. One load. */
unsigned allotment_counter_level_threshold(const allotment_counter_level *counter);

/* Sets it (1 to 125, clamped). The error bound goes by the largest that there
 * ever was. AS-SAFE. */
void allotment_counter_level_set_threshold(allotment_counter_level *counter, unsigned threshold);

/* ---- Quota counters: what there may be. --------------------------------- */

typedef struct allotment_counter_quota allotment_counter_quota;

/* Nothing in use of `limit` (at most 2^62, clamped); NULL without memory. Each
 * index keeps a stock of at most 2 * `batch` charged beforehand (1 to 2^40,
 * clamped; 0: so that all CPUs' stocks are at most an eighth of the limit). */
allotment_counter_quota *allotment_counter_quota_new(uint64_t limit, uint64_t batch);

/* Gives it back. A lock. */
void allotment_counter_quota_free(allotment_counter_quota *counter);

/* Uses n if they fit: 1, else 0. Never beyond the limit, and never refuses what
 * fits. One sequence; a lock for every batch; near the limit one
 * compare-and-swap on the shared total, and one system call (membarrier) when
 * that begins. Where that call is refused, or the process has filtered its calls
 * or promised to (prctl with PR_SET_NO_NEW_PRIVS) while `allotment run` watches,
 * it may refuse what fits by what other indices have in stock, until each of them
 * has an update that the total refuses. */
int allotment_counter_quota_try_add(allotment_counter_quota *counter, uint64_t n);

/* Returns n that were used: 1. Returns 0 and does nothing if it sees that they
 * were not. Costs as _try_add. */
int allotment_counter_quota_sub(allotment_counter_quota *counter, uint64_t n);

/* At least what is in use, and more by what is in stocks: at most 2 * batch for
 * each index in use. AS-SAFE. One load. */
uint64_t allotment_counter_quota_charged(const allotment_counter_quota *counter);

/* What is in use. Exact if nobody changes it meanwhile. AS-SAFE. No lock; a
 * load for each index in use. */
uint64_t allotment_counter_quota_used(const allotment_counter_quota *counter);

/* The limit. AS-SAFE. One load. */
uint64_t allotment_counter_quota_limit(const allotment_counter_quota *counter);

/* Changes the limit (at most 2^62, clamped). When it returns nothing more can
 * be used beyond the new one; what is in use stays in use. A lock, and a system
 * call (membarrier) if less than that is charged. */
void allotment_counter_quota_set_limit(allotment_counter_quota *counter, uint64_t limit);

/* ---- Per-CPU memory ------------------------------------------------------ */
/* Memory of which every index has a copy: any size from 1 byte to 256 KiB, any
 * power-of-two alignment up to 4096, zeroed in every copy. Costs a copy for each
 * index in use, filled page by page at the first touch (docs/percpu.md). */

/* Opaque; the pointer is no address that may be read or written. */
typedef struct allotment_percpu allotment_percpu;

/* NULL with errno = EINVAL (size or alignment) or ENOMEM. Some 300 instructions;
 * now and then a lock and a search, and a system call for each 256 KiB. */
allotment_percpu *allotment_percpu_alloc(size_t size, size_t align);

/* The same from memory that is populated already: no system call, no waiting.
 * ENOMEM if there is none; from the first call on some is kept ready, by other
 * calls. */
allotment_percpu *allotment_percpu_alloc_populated(size_t size, size_t align);

/* The same from 8 KiB that no other function takes. */
allotment_percpu *allotment_percpu_alloc_reserved(size_t size, size_t align);

/* Takes an allocation back; its size is known. 0; or -1 with errno = EINVAL and
 * nothing changed for what is free already, inside an allocation, or foreign.
 * NULL is ignored. Nobody may use any copy any more. */
int allotment_percpu_free(allotment_percpu *memory);

/* The same for `count` of them, none NULL, which waits less for memory if they lie
 * at random places. -1 if any was wrong; all others are freed. */
int allotment_percpu_free_bulk(allotment_percpu *const *memories, size_t count);

/* This index's copy. The thread may be on another CPU a moment later, and
 * another thread may run on this one between two instructions: use atomics.
 * AS-SAFE. A load, a compare and an add. */
void *allotment_percpu_this_cpu(const allotment_percpu *memory);

/* The copy of an index; NULL at or above allotment_percpu_indices(). AS-SAFE. */
void *allotment_percpu_for_cpu(const allotment_percpu *memory, unsigned index);

/* How many indices there can ever be; 0 before the first allocation. AS-SAFE. */
unsigned allotment_percpu_indices(void);

/* How many have been used: copies at or above are zero. AS-SAFE. */
unsigned allotment_percpu_indices_in_use(void);

/* Gives empty pages back to the system (this also happens by itself, in bulk);
 * how many, of one copy. Locks, and system calls. */
size_t allotment_percpu_balance(void);

/* Writes the text of the kernel's percpu_stats about this process into at most
 * `size` bytes, with a zero at the end; the length of all of it, as snprintf. */
size_t allotment_percpu_stats(char *text, size_t size);

/* ---- Draining what CPUs cache ---------------------------------------------
 *
 * Empties the caches of free objects and pages that CPUs have in this heap, from
 * any thread, while their owners go on (docs/drain.md). What is taken is free
 * memory of the heap afterwards; malloc_trim gives that back to the system, too.
 * In a program whose malloc is another's, only the heap behind the pages of this
 * library is concerned. */

/* How far a drain goes for the cache of a CPU that runs a thread of ours:
 * GENTLE asks that thread, which answers when it next leaves its fast path, or
 * has parked; EXPEDITED interrupts it once, for 1-2 us; AUTO is GENTLE on
 * isolated CPUs (isolcpus, nohz_full) and EXPEDITED on all others. */
#define ALLOTMENT_DRAIN_AUTO 0u
#define ALLOTMENT_DRAIN_GENTLE 1u
#define ALLOTMENT_DRAIN_EXPEDITED 2u

/* What a drain took. */
typedef struct allotment_drained {
    uint64_t reached;   /* caches emptied */
    uint64_t unreached; /* caches that hold something still: nobody answered, or
                           the system refused the fence */
    uint64_t objects;   /* objects and blocks of pages taken */
    uint64_t bytes;     /* bytes of them */
    uint64_t fences;    /* fences sent */
    uint64_t answers;   /* caches that their owners gave up when asked */
} allotment_drained;

/* Drains the caches of CPU `cpu`, or of all CPUs (-1). What it took goes to
 * `drained` unless that is NULL. 0; -1 and EAGAIN if something could not be
 * reached (what could be has been drained), -1 and EINVAL for another way. A
 * fence for each CPU, or one for all; GENTLE also waits, 10 ms at most. */
int allotment_drain(int cpu, unsigned way, allotment_drained *drained);

/* The same for the CPUs that run none of our threads now: nobody is interrupted.
 * Looks at each thread of the process, some us each. */
int allotment_drain_idle(allotment_drained *drained);

/* The calling thread will not allocate for a while: gives up what its CPU caches,
 * so that drains empty it without disturbing this CPU, until the next allocation
 * or free there. 0; -1 and EAGAIN if that cannot be done now (a fork is under
 * way), or need not be (no restartable sequences). A lock, and a sequence. */
int allotment_park(void);

/* ---- Pages: blocks of 2^order pages of 4 KiB, aligned to their size. ----- */

/* From Allotment's own heap, whatever malloc the program uses: lists for orders
 * 0-3 and 9 on each CPU, over a buddy allocator for each NUMA node. What is free
 * goes back to the system in time, as with malloc (docs/pages.md). After fork,
 * parent and child each have all blocks. Errors set errno as said below. */

/* The order of the largest block: 4 MiB. */
#define ALLOTMENT_PAGES_ORDER_MAX 10u
/* Flags, to be combined. All zero; costs nothing where the pages are known to be. */
#define ALLOTMENT_PAGES_ZERO 1u
/* From what is there: the system is not asked, and a reserve may be taken. */
#define ALLOTMENT_PAGES_ATOMIC 2u
/* From the node asked for, or not at all; else from the nearest that has any.
 * (Nodes 0-7 have a zone each. Of one that the machine has not, memory is of any.) */
#define ALLOTMENT_PAGES_THIS_NODE 4u

/* A block; from the node that runs us if `node` is -1. NULL with errno = ENOMEM
 * without memory, EINVAL for an order, node or flag that does not exist. Orders
 * 0-3 and 9 without flags: a sequence and a store; the others: a lock. */
void *allotment_pages_alloc(unsigned order, int node, unsigned flags);

/* Takes a block back; its order is known. 0; or -1 with errno = EINVAL and nothing
 * changed for what is free already, inside a block, foreign, or malloc's. NULL is
 * ignored. Some loads, a sequence and a store. */
int allotment_pages_free(void *block);

/* Writes `count` blocks; how many there are: fewer only without memory (or for
 * an order, node or flag that does not exist: 0). Some nanoseconds a block. */
size_t allotment_pages_alloc_bulk(unsigned order, int node, unsigned flags, void **blocks, size_t count);

/* Takes blocks of whatever orders back. 0; or -1 with errno = EINVAL if any was
 * none: all others were taken. Cheapest in the order of addresses. */
int allotment_pages_free_bulk(void *const *blocks, size_t count);

/* Writes /proc/buddyinfo, or /proc/zoneinfo with the lists of each index, of this
 * heap into at most `size` bytes, with a zero at the end; the length of all of
 * it, as snprintf. A lock for each 2 MiB. */
size_t allotment_buddyinfo(char *text, size_t size);
size_t allotment_zoneinfo(char *text, size_t size);

/* ---- Areas: whole pages, as malloc gives them above 16 KiB. -------------- */

/* From Allotment's own heap, whatever malloc the program uses. Rounded to pages, and
 * from 64 KiB to 1 MiB by up to an eighth to a size that serves others; a freed area
 * is reused at once and goes back to the system in bulk later (docs/areas.md). After fork, parent and child each have all areas. */

/* A page behind the area's last where every access faults. It costs no mapping. */
#define ALLOTMENT_AREA_GUARD 1u

/* At least `size` bytes with whatever contents, aligned to pages and to
 * `alignment` (a power of two, or 0). NULL with errno = ENOMEM without memory (with
 * a guard also from half a GiB on, alignment included, and before Linux 6.13), EINVAL for an alignment or
 * flag that does not exist. Some tens of ns for a reused one. */
void *allotment_area_alloc(size_t size, size_t alignment, unsigned flags);

/* Takes an area back, one of these or of this heap's malloc. 0; or -1 with errno =
 * EINVAL and nothing changed for what is free already, inside an area or foreign.
 * (Two threads that free it at the same moment may both be told 0; above 64 KiB it
 * is free once. Up to 64 KiB a second free on another CPU may be told 0, too: it is
 * reported later, as malloc's is; at once with the knob bad_free=abort.) NULL is ignored. Some tens of ns, now and then a slice of a purge. */
int allotment_area_free(void *area);

/* Bytes of an area in use, whole pages without its guard; 0 if it is none. */
size_t allotment_area_size(const void *area);

/* ---- All ----------------------------------------------------------------- */

/* "sequences", "fallback" (locked operations), or "closed" before the first
 * counter of the process. A constant. AS-SAFE. */
const char *allotment_counter_mode(void);

/* Indices that have counted so far: how many loads a sum is. AS-SAFE. */
unsigned allotment_counter_indices(void);

#ifdef __cplusplus
}
#endif

#endif
