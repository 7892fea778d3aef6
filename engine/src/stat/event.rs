//! # The one list of events
//!
//! An event is something that happened; it is only ever counted up. Fast paths
//! do not count here: they bump the word of their class in the set's tally
//! (see [`super::board`]). Everything in this list is counted on slow paths,
//! in the tally of the CPU that took them, with a relaxed add.

/// Declares the enum, its names and its meanings from one table.
macro_rules! table {
    ($(#[$outer:meta])* $name:ident { $($item:ident = $text:literal, $meaning:literal;)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum $name { $(#[doc = $meaning] $item),* }

        impl $name {
            /// Every item, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$item),*];
            /// The name that reports print.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($name::$item => $text),* }
            }
            /// Half a line of meaning.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $($name::$item => $meaning),* }
            }
        }
    };
}

table! {
    /// What slow paths count.
    Event {
        AllocSlowpath = "alloc_slowpath", "allocations that went beyond this CPU's set";
        FreeSlowpath = "free_slowpath", "frees that went beyond this CPU's set";
        SlowpathTicks = "slowpath_ticks", "time-stamp ticks spent in slow paths";
        SeqAbort = "seq_abort", "sequences that were interrupted and tried again";
        SetAdopt = "set_adopt", "times a set came along to the CPU its index moved to";
        Direct = "direct", "objects taken from or given to a slab one by one (fork, vfork, three aborts)";
        SheafSwap = "sheaf_swap", "empty or full main sheaves exchanged for the CPU's own spare";
        BarnGet = "barn_get", "full sheaves taken from a barn";
        BarnPut = "barn_put", "full sheaves put into a barn";
        SheafRefill = "sheaf_refill", "sheaves filled from slabs";
        SheafFlush = "sheaf_flush", "sheaves emptied into slabs";
        ClassIdle = "class_idle", "classes that did nothing and gave up their sheaves and what they were entitled to";
        AllocSlab = "alloc_slab", "slabs made";
        FreeSlab = "free_slab", "slabs given back to the page layer";
        PageRefill = "page_refill", "page lists refilled from a zone";
        PageFlush = "page_flush", "page lists emptied into a zone";
        ZoneGrow = "zone_grow", "times a zone opened more address space";
        AreaAlloc = "area_alloc", "areas made of free address space";
        AreaReuse = "area_reuse", "areas made from a lazily freed one of the same size";
        AreaFree = "area_free", "areas freed (lazily)";
        AreaMove = "area_move", "areas moved by page tables in realloc";
        AreaGrow = "area_grow", "areas grown or shrunk in place in realloc";
        Purge = "purge", "purges of lazily freed memory";
        PurgeBytes = "purge_bytes", "bytes given back to the system";
        PurgeRefused = "purge_refused", "advice calls that the system refused or did in part";
        Drain = "drain", "per-CPU sets drained";
        Fence = "fence", "targeted or process-wide fences sent";
        Keeper = "keeper", "housekeeping threads started";
        Fork = "fork", "forks seen";
        Vfork = "vfork", "vforks seen";
        AllocAside = "alloc_aside", "allocations served from the side arena, because a fork was in flight";
        PutOff = "put_off", "frees put off until a fork was over";
        LostAside = "lost_aside", "frees beside a fork that no memory was left to note: lost";
        NoMemory = "no_memory", "requests answered with ENOMEM";
        Answer = "answer", "sets given up by their owners, because a drain had asked";
        Park = "park", "sets given up by threads that said they would not allocate";
        DrainMissed = "drain_missed", "sets that a drain could not reach";
        Reaper = "reaper", "reapers left behind at the end, to free this process's memory after its death";
        SoftLimit = "soft_limit", "times that all caches were drained because the soft limit was near";
        LimitRefused = "limit_refused", "requests that the hard limit refused";
        BadFree = "bad_free", "foreign, misplaced or doubly freed pointers reported and left alone";
    }
}

table! {
    /// Levels: what there is of something now, in bytes unless said otherwise.
    Level {
        Taken = "taken", "bytes of objects out of slabs: in use or cached per CPU";
        TakenPeak = "taken_peak", "highest sum of `taken` and `areas` so far";
        Recent = "recent", "highest sum of the last look's eighth of a second (see `reclaim`)";
        Areas = "areas", "bytes of areas in use";
        Lazy = "lazy", "bytes of areas freed lazily: still mapped, reusable at once";
        Slabs = "slabs", "bytes of slabs";
        PagesManaged = "pages_managed", "bytes opened by zones: free, in slabs, in lists, or the program's";
        PagesFree = "pages_free", "bytes of free pages in zones, dirty and clean";
        PagesDirty = "pages_dirty", "bytes of free pages in zones that may be resident";
        Huge = "huge", "bytes of zones that ask for huge pages";
        Mapped = "mapped", "bytes opened for reading and writing, metadata included";
        Reserved = "reserved", "bytes of address space reserved";
        Meta = "meta", "bytes of metadata opened";
        Charged = "charged", "bytes of the budget that sheaves are entitled to";
        Barns = "barns", "bytes of objects in barns, within a budget as large";
        Aside = "aside", "bytes of blocks of the side arena, which serves beside forks";
        Mappings = "mappings", "most mappings that the heap has caused (count)";
    }
}

table! {
    /// What is timed, in histograms (see [`super::board::Times`]).
    Timing {
        Purge = "purge", "purges of lazily freed areas";
        Drain = "drain", "drains of per-CPU sets, all that one call takes";
        Refill = "refill", "allocations of objects that went beyond this CPU's set";
        Free = "large_free", "frees of areas that went beyond the lists of their size";
    }
}
