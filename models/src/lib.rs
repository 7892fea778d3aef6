//! # The engine's protocols over a checked machine
//!
//! ```text
//! engine/src: cpu/*, cache/*, percpu/*, counter/*, slab/{mod, bits}, arch/{gate, lock, outcome}, heap/gates, vmap/wide, knob   unchanged
//!             ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────
//! here:       arch::{atomic, seq, rseq, sys}, stat, meta, page     facades with the same names
//!             machine: fake CPUs, indices, store buffers, futexes; every step is one of shuttle's choices
//! ```
//! It runs in mode `Sequences`: [`arch::seq`] does each contract of the engine's
//! `arch/contract.rs` step by step through the engine's own `cache/steps.rs`.
//!
//! ## What the machine does (see [`machine`])
//! * Threads are preempted at every atomic access. A thread that begins to run on a CPU
//!   takes it from the one there, whose sequence then aborts; indices move between CPUs.
//! * Stores wait in a buffer, as on x86-64 (TSO), until a locked instruction, a full
//!   fence, a fence from another CPU, a context switch, or chance writes them. So a
//!   missing store-load fence is found; acquire and release are what x86-64 makes of
//!   them. (Sequences exist on x86-64 only.)
//! * Plain memory is not checked for races: accesses between two atomic ones are one step.
//!
//! ## How much is tried
//! Each model runs half its schedules at random and half by PCT (depth 4), from a
//! seed that it prints. They are samples, not proofs; the canaries in each file show
//! that the bound suffices to find the protocol broken in one place.
//!
//! | to | set |
//! |---|---|
//! | try more | `ALLOTMENT_MODEL_ITERATIONS=1000000` (schedules for each model), with `--release` five times as fast |
//! | try others | `ALLOTMENT_MODEL_SEED=n` |
//! | see each step | `ALLOTMENT_MODEL_TRACE=1`, with the next |
//! | replay a failure | the printed `failing seed`: `SHUTTLE_RANDOM_SEED=n ALLOTMENT_MODEL_ITERATIONS=1 cargo test … name_of_the_model` |

pub mod arch;
pub mod class;
pub mod harness;
pub mod machine;
pub mod meta;
pub mod page;
pub mod stat;

#[path = "../../engine/src/cache/mod.rs"]
pub mod cache;
#[path = "../../engine/src/counter/mod.rs"]
pub mod counter;
#[path = "../../engine/src/cpu/mod.rs"]
pub mod cpu;
#[path = "../../engine/src/knob.rs"]
pub mod knob;
#[path = "../../engine/src/percpu/mod.rs"]
pub mod percpu;

/// Modules that the build script writes: the engine's, with what it replaces there.
macro_rules! written {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[allow(unsafe_code, dead_code, unused_imports, unused_variables, clippy::all, reason = "the engine's, changed")]
        pub mod $name {
            include!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".rs"));
        }
    )*};
}

written! {
    /// The slab layer as it is, but for slabs of four objects.
    slab;
    /// Canary: without the rule of the last object.
    slab_without_last;
    /// Canary: a slab that stops being full is not listed.
    slab_full_unlisted;
    /// Canary: a slab in a refiller's hand may be unmade.
    slab_unlisted;
    /// Canary: a trim shares its slabs with those who draw.
    slab_trim_shared;
    /// Canary: a folder takes the owner's byte back to 0, as the kernel's does on the CPU itself.
    level_folder_writes;
    /// Canary: a fork does not wait for those inside.
    gate_rushes;
    /// Canary: whoever comes in does not look whether a fork is in flight.
    gate_blind;
    /// Canary: a thread of ours is alone beside others.
    gate_alone_beside;
    /// Canary: a fork that waited for a frame has the copy of one above that frame.
    gate_is_never_stale;
    /// Canary: who gives up last leaves all closed.
    gate_leaves_closed;
    /// Canary: the end of a vfork ends those below it, too.
    gate_ends_all;
    /// Canary: a vfork has a note, also if its child may outlive its parent.
    gate_notes_apart;
    /// Canary: the end of a vfork ends none of its child's.
    gate_ends_one;
    /// The gate; forks make way as long as it takes.
    gate_patient;
    /// Canary: forks make no way for who waits for them.
    gate_makes_no_way;
    /// Areas that wait for the next request.
    wide;
    /// Canary: whoever saw one has it.
    wide_takes_blindly;
    /// Canary: whoever saw room leaves one there.
    wide_puts_blindly;
    /// The gates of the heap's fast paths.
    gates;
    /// Canary: who sets the gate of others does not look once more behind it.
    gates_looks_once;
    /// What per-CPU memory has of the system: of the machine, here.
    space_memory;
    /// Per-CPU memory as it is, but for two claims and small mappings.
    space;
    /// Canary: a claim is used without a look at whose the chunk is now.
    space_claim_stays;
    /// Canary: a chunk is given back without a look at whether it is still empty.
    space_returns_blindly;
}
