/* Where memory lies, by what the kernel says (move_pages, /proc/self/numa_maps): nodes NAME, under the library.
 *
 *   placed     what a node's threads are given lies there, though another node's thread touches it first
 *   freed      what another node's threads have freed they are not given again, once caches have been drained
 *   purged     the same after everything went back to the system
 *   maps       numa_maps: ranges that prefer a node have their pages there
 *   near       where a node's zone cannot grow, others serve by their distance
 *   bind N, interleave   a policy that the program is started with goes before ours (set_mempolicy, as numactl does)
 *
 * The last line says what was seen. Ends with 0, 1 (a check failed) or 77 (skipped). */
#include "../cli/tests/c/check.h"
#include <allotment.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* There under the library only. */
#pragma weak allotment_drain
#pragma weak allotment_pages_alloc
#pragma weak allotment_pages_free

enum { NODES = 8, PAGE = 4096, BIND = 2, INTERLEAVE = 3, ENOUGH = 95 };
static int nodes;

/* What is asked for, of about 4 MiB each. */
static const struct kind {
    const char *name;
    size_t size;
    int count;
    bool pages;
} KINDS[] = {{"100 B", 100, 40000, false}, {"8 KiB", 8192, 500, false}, {"pages", PAGE, 1000, true}, {"256 KiB", 256 << 10, 16, false}};
enum { KIND_COUNT = 4, AREAS = 3, MOST = 40000 };

struct work {
    const struct kind *kind;
    void **blocks;
    void (*does)(struct work *);
};

static void take(struct work *work)
{
    for (int at = 0; at < work->kind->count; at++) {
        work->blocks[at] = work->kind->pages ? allotment_pages_alloc(0, -1, 0) : malloc(work->kind->size);
        CHECK(work->blocks[at]);
    }
}

static void touch(struct work *work)
{
    for (int at = 0; at < work->kind->count; at++)
        memset(work->blocks[at], at, work->kind->size);
}

static void give(struct work *work)
{
    for (int at = 0; at < work->kind->count; at++)
        if (work->kind->pages)
            CHECK(!allotment_pages_free(work->blocks[at]));
        else
            free(work->blocks[at]);
}

static void *run(void *argument)
{
    struct work *work = argument;
    work->does(work);
    return NULL;
}

/* Does it in a thread that has never run elsewhere than on the node's first CPU. */
static void on_node(int node, void (*does)(struct work *), const struct kind *kind, void **blocks)
{
    char path[64], list[64] = "";
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(list, sizeof list, file));
    fclose(file);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(atoi(list), &one);
    pthread_attr_t pinned;
    pthread_attr_init(&pinned);
    CHECK(!pthread_attr_setaffinity_np(&pinned, sizeof one, &one));
    struct work work = {kind, blocks, does};
    pthread_t thread;
    CHECK(!pthread_create(&thread, &pinned, run, &work));
    pthread_join(thread, NULL);
}

static int node_of(void *block)
{
    int node = -1;
    CHECK(!syscall(SYS_move_pages, 0, 1ul, &block, NULL, &node, 0));
    return node;
}

/* Of so many blocks the share on each node, in hundredths. */
static void shares(const struct kind *kind, void **blocks, int *share)
{
    int counts[NODES] = {0}, all = 0;
    for (int at = 0; at < kind->count; at++)
        for (size_t page = 0; page < kind->size; page += PAGE) {
            int node = node_of((char *)blocks[at] + page);
            CHECK(node >= 0 && node < NODES, "%s: page of block %d: %d", kind->name, at, node);
            counts[node]++, all++;
        }
    for (int node = 0; node < NODES; node++)
        share[node] = counts[node] * 100 / all;
}

static void *blocks[MOST];

/* Taken on a node, touched by the next one: the share that lies where it should, least of all nodes and kinds. */
static int taken_and_touched(int (*checked)(const struct kind *, int node, int other))
{
    int least = 100;
    for (int kind = 0; kind < KIND_COUNT; kind++)
        for (int node = 0; node < nodes; node++) {
            int share = checked(&KINDS[kind], node, (node + 1) % nodes);
            printf("%s of node %d: %d %%\n", KINDS[kind].name, node, share);
            least = share < least ? share : least;
        }
    return least;
}

/* Areas lie where they are first touched; everything else on the node that it was taken on. (Kept, so that the
 * next are given others.) */
static int placed(const struct kind *kind, int node, int other)
{
    int share[NODES];
    on_node(node, take, kind, blocks);
    on_node(other, touch, kind, blocks);
    shares(kind, blocks, share);
    return share[kind == &KINDS[AREAS] ? other : node];
}

static int purged(const struct kind *kind, int node, int other)
{
    placed(kind, node, other);
    on_node(node, give, kind, blocks);
    malloc_trim(0);
    return placed(kind, node, other);
}

/* By kind: the most that was given again at once. */
static int at_once[KIND_COUNT];

static int taken_again(const struct kind *kind, int on, int of)
{
    int share[NODES];
    on_node(on, take, kind, blocks);
    on_node(on, touch, kind, blocks);
    shares(kind, blocks, share);
    on_node(on, give, kind, blocks);
    return share[of];
}

/* What the other node's thread has freed, and is given again: at once some of it, after a drain none. Of areas, which are
 * reused where they lie, after a purge. */
static int freed(const struct kind *kind, int node, int other)
{
    on_node(node, take, kind, blocks);
    on_node(node, touch, kind, blocks);
    on_node(other, give, kind, blocks);
    int share = taken_again(kind, other, node), *most = &at_once[kind - KINDS];
    *most = share > *most ? share : *most;
    if (kind == &KINDS[AREAS])
        malloc_trim(0);
    else
        CHECK(!allotment_drain(-1, ALLOTMENT_DRAIN_EXPEDITED, NULL));
    return taken_again(kind, other, other);
}

static int maps(void)
{
    for (int node = 0; node < nodes; node++)
        for (int kind = 0; kind < AREAS; kind++) {
            on_node(node, take, &KINDS[kind], blocks);
            on_node((node + 1) % nodes, touch, &KINDS[kind], blocks);
        }
    long there[NODES] = {0}, elsewhere[NODES] = {0};
    char line[1024];
    FILE *file = fopen("/proc/self/numa_maps", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        char *prefer = strstr(line, " prefer");
        int node = prefer && (prefer = strchr(prefer, ':')) ? atoi(prefer + 1) : -1;
        for (char *at = line; node >= 0 && (at = strstr(at, " N")); at++) {
            int on;
            long pages;
            if (sscanf(at, " N%d=%ld", &on, &pages) == 2)
                *(on == node ? &there[node] : &elsewhere[node]) += pages;
        }
    }
    fclose(file);
    for (int node = 0; node < nodes; node++) {
        printf("node %d: %ld pages of ranges that prefer it, %ld elsewhere; ", node, there[node], elsewhere[node]);
        /* 12 MiB were taken for it. */
        CHECK(there[node] >= 2048 && elsewhere[node] * 20 <= there[node], "node %d: %ld there, %ld elsewhere", node, there[node], elsewhere[node]);
    }
    putchar('\n');
    return 0;
}

/* The others' zones have pages, the system gives no more. */
static int near(void)
{
    static const struct kind some = {"pages", PAGE, 3000, true};
    for (int node = 0; node < nodes; node++)
        on_node(node, take, &some, blocks), on_node(node, touch, &some, blocks), on_node(node, give, &some, blocks);
    CHECK(!allotment_drain(-1, ALLOTMENT_DRAIN_EXPEDITED, NULL));
    struct rlimit none = {PAGE, PAGE};
    CHECK(!setrlimit(RLIMIT_AS, &none));
    int order[NODES], distances[NODES], count = 0, in_order = 0;
    FILE *file = fopen("/sys/devices/system/node/node0/distance", "r");
    CHECK(file);
    for (int node = 0; node < nodes; node++)
        CHECK(fscanf(file, "%d", &distances[node]) == 1);
    fclose(file);
    int last = -1, at = 0;
    for (; at < MOST && (blocks[at] = allotment_pages_alloc(0, 0, 0)); at++) {
        memset(blocks[at], 1, PAGE);
        int node = node_of(blocks[at]);
        if (node != last && count < NODES)
            order[count++] = node;
        last = node;
    }
    CHECK(at >= nodes * 2000, "%d pages in all", at);
    printf("node 0, without memory, was served by");
    for (at = 0; at < count; at++) {
        printf(" %d (distance %d)", order[at], distances[order[at]]);
        in_order += at == 0 || distances[order[at - 1]] <= distances[order[at]];
    }
    putchar('\n');
    CHECK(count == nodes && in_order == count, "%d of %d in order", in_order, count);
    return 0;
}

/* Under a policy of the program's own for these nodes: the share on each. */
static int governed(unsigned long mask)
{
    for (int kind = 0; kind < KIND_COUNT; kind++)
        for (int node = 0; node < nodes; node++) {
            int share[NODES];
            on_node(node, take, &KINDS[kind], blocks);
            on_node(node, touch, &KINDS[kind], blocks);
            shares(&KINDS[kind], blocks, share);
            for (int on = 0; on < nodes; on++) {
                bool asked = mask >> on & 1;
                int even = 100 / __builtin_popcountl(mask);
                CHECK(asked ? share[on] > even / 2 : share[on] < 100 - ENOUGH, "%s of node %d: %d %% on node %d", KINDS[kind].name, node, share[on], on);
            }
        }
    printf("%d kinds of blocks from each of %d nodes lie on nodes %#lx\n", KIND_COUNT, nodes, mask);
    return 0;
}

int main(int count, char **words)
{
    const char *name = count > 1 ? words[1] : "";
    setvbuf(stdout, NULL, _IONBF, 0);
    while (nodes < NODES) {
        char path[64];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d", nodes);
        if (access(path, F_OK))
            break;
        nodes++;
    }
    if (nodes < 2) {
        puts("one node");
        return SKIPPED;
    }
    bool bind = !strcmp(name, "bind") && count == 3;
    if (bind || !strcmp(name, "interleave")) {
        char text[32];
        unsigned long mask = bind ? 1ul << atoi(words[2]) : (1ul << nodes) - 1;
        CHECK(!syscall(SYS_set_mempolicy, bind ? BIND : INTERLEAVE, &mask, 64ul), "set_mempolicy");
        snprintf(text, sizeof text, "%lu", mask);
        execl("/proc/self/exe", "nodes", "governed", text, NULL);
    }
    if (!strcmp(name, "governed") && count == 3)
        return governed(strtoul(words[2], NULL, 0));
    /* Ranges are bound from the moment on when there is a second node: what was mapped before is used up. */
    static const struct kind one = {"one", 64, 1, false}, first = {"first", 8192, 256, false};
    for (int node = nodes; node--;)
        on_node(node, take, &one, blocks);
    for (int node = nodes; node--;)
        on_node(node, take, &first, blocks), on_node(node, touch, &first, blocks);
    if (!strcmp(name, "maps"))
        return maps();
    if (!strcmp(name, "near"))
        return near();
    int (*checked)(const struct kind *, int, int) = !strcmp(name, "placed") ? placed : !strcmp(name, "purged") ? purged : !strcmp(name, "freed") ? freed : NULL;
    CHECK(checked, "see the head of nodes.c");
    int least = taken_and_touched(checked);
    for (int kind = 0; kind < KIND_COUNT && checked == freed; kind++)
        printf("%s: %d %% given again at once; ", KINDS[kind].name, at_once[kind]);
    printf("%d kinds of blocks from each of %d nodes: at least %d %% where they should be\n", KIND_COUNT, nodes, least);
    CHECK(least >= ENOUGH, "%d %%", least);
    return 0;
}
