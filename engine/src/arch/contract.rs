//! # The contract of every sequence
//!
//! A restartable sequence is a few instructions that end with one store, its *commit*. If the thread is preempted,
//! migrated or gets a signal between the first instruction and the commit, the kernel sends it to the abort stub: the
//! store either happened on the CPU on which the sequence began, with everything it had read still true there, or not at
//! all. The assembly ([`super::seq`] for malloc's sets, [`super::unit_seq`] for per-CPU memory) carries in every line its
//! line of this page; `cache::steps` and `models` do the same steps in Rust. What they do is said here and nowhere else.
//!
//! ## Results, the same for all ([`super::outcome::Outcome`])
//! | result | means | what has changed |
//! |---|---|---|
//! | done | committed | what the commit says, and the counts |
//! | refused | it found that it must not | nothing |
//! | aborted | interrupted somewhere before the commit | nothing that anybody relies on (below) |
//!
//! ## Before (what the caller sees to)
//! | | for |
//! |---|---|
//! | `area` is the calling thread's own, as `rseq::area` found it; a thread without registration has −1 or −2 in `cpu_id`: on sets, the two slots before the first lead to the void set; on units it is refused | all |
//! | a set, a sheaf or a unit that was ever reachable is mapped for ever: a sequence that will abort may still read and write it | all |
//! | `class` is the offset of a class's pair of words, `at` that of a word which this operation may change | all on sets |
//! | `object` is a live object of that class, and given up if the result is done | `push`, `push_batch` |
//! | `new` is a valid word: that of no sheaf, or of one that nobody else has | `swap` |
//! | the lock of the slots is held; `new` leads to a set that nobody else uses, or is 0 | `switch` |
//! | `at` is aligned and allocated, its copies below `high` mapped for writing | all on units |
//! | `delta` is at most 128 | `up`, `down` |
//!
//! ## On sets: every one begins
//! ```text
//! 1  area.rseq_cs = descriptor                    from here on an interruption aborts
//! 2  set = board + board.slots[area.cpu_id]       the only switch: a drain, a fork or vfork changes the slot
//! ```
//! | name | then | commits with |
//! |---|---|---|
//! | `pop` | `w = set[class]`; 0: refused; `object = *(w - 8)`, if that is a barrier refused; `tally.allocs += 1` | `set[class] = w - 8` |
//! | `push` | `w = set[class]`; 0, or `*w` is a barrier: refused; `*w = object` and `tally.frees += 1`, in either order | `set[class] = w + 8` |
//! | `pop_batch` | up to `n` times: `object = *(w - 8)`, until that is a barrier, goes out, `w -= 8`; none, or `w` is 0: refused; `allocs += k` | `set[class] = w` |
//! | `push_batch` | up to `n` times: until `*w` is a barrier, `*w = object`, `w += 8`; none, or `w` is 0: refused; `frees += k` | `set[class] = w` |
//! | `swap` | (void: refused); `set[at] != old`: refused | `set[at] = new` (compare and store) |
//! | `exchange` | `w = set[class]`, `s` the spare; `w` is not 0 and `*(w + witness)` no barrier, or `s` is 0 (as in the void set) or `*(s + witness)` a barrier: refused | both, `s` and `w`, by one store; where the processor has none that an interruption cannot split, refused |
//! | `add` | (void: refused) | `tally[at] += n` |
//! | `switch` | `set != old`: refused | `board.slots[area.cpu_id] = new` |
//!
//! A word is the address of the slot behind a sheaf's last object; a barrier, a number up to [`BARRIER`](super::operands::BARRIER), is
//! either end of a sheaf; 0 is no sheaf (`cache::layout`).
//!
//! ## On units: every one begins
//! ```text
//! 1  area.rseq_cs = descriptor
//! 2  i = area[INDEX]; i >= high: refused          closed (0), or an index that was never raised
//! 3  area.cpu_id < 0: refused                     unregistered thread
//! 4  u = at + (i + 1) × UNIT
//! ```
//! | name | then | commits with |
//! |---|---|---|
//! | `add` | | `u64[u] += n` |
//! | `up` | `v = i8[u] + delta`; `v > threshold`: refused | `i8[u] = v` |
//! | `down` | `v = i8[u] - delta`; `v < -threshold`: refused | `i8[u] = v` |
//! | `move_within` | `v = u64[u] + delta`; `v >= cap` (unsigned): refused | `u64[u] = v` |
//! | `swap` | `u8[u] != old`: refused | `u8[u] = new` |
//!
//! `high`, `threshold` and `cap` are words in memory, read inside: a thread that changes one and then fences knows that
//! every later commit has seen it.
//!
//! ## Where each may be interrupted, and what is left then
//! Anywhere from line 1 to the instruction before the commit; behind the commit it is done. An interrupted one leaves:
//! | name | leaves | harmless, because |
//! |---|---|---|
//! | `pop`, `pop_batch` | `allocs` too high; objects copied to the caller's `into` | the bound is stated ([`crate::stat::board`]); the caller looks at `into` only if done |
//! | `push`, `push_batch` | `frees` too high; slots above the top written | as above; what is above a word is looked at as a barrier only, and is none before or after |
//! | all others | nothing | they write nothing before the commit |
//!
//! ## After
//! A thread that stores a new slot (or `high`, `cap`, `threshold`) and then fences the CPU (`rseq::Fence`) owns what the old
//! one led to: every sequence that read the old value has committed or will abort. Tests dawdle before the first load and
//! before the commit of each, where a lost race would show.
