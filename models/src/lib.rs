//! # The engine's protocols over a checked machine
//!
//! ```text
//! engine/src: cpu/*, cache/*, percpu/*, counter/*, slab/{mod, bits}, arch/{gate, lock, outcome}, knob     unchanged
//!             ─────────────────────────────────────────────────────────────────────────────────────────────────────
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

/// The slab layer as it is, but for slabs of four objects.
#[allow(unsafe_code, reason = "the engine's")]
pub mod slab {
    include!(concat!(env!("OUT_DIR"), "/slab.rs"));
}
/// Canary: without the rule of the last object.
#[allow(unsafe_code, reason = "the engine's")]
pub mod slab_without_last {
    include!(concat!(env!("OUT_DIR"), "/slab_without_last.rs"));
}
/// Canary: a slab that stops being full is not listed.
#[allow(unsafe_code, reason = "the engine's")]
pub mod slab_full_unlisted {
    include!(concat!(env!("OUT_DIR"), "/slab_full_unlisted.rs"));
}
/// Canary: a slab in a refiller's hand may be unmade.
#[allow(unsafe_code, clippy::collapsible_if, reason = "the engine's, changed")]
pub mod slab_unlisted {
    include!(concat!(env!("OUT_DIR"), "/slab_unlisted.rs"));
}
/// Canary: a trim shares its slabs with those who draw.
#[allow(unsafe_code, unused_variables, reason = "the engine's, changed")]
pub mod slab_trim_shared {
    include!(concat!(env!("OUT_DIR"), "/slab_trim_shared.rs"));
}

/// Canary: a folder takes the owner's byte back to 0, as the kernel's does on the CPU itself.
#[allow(unsafe_code, reason = "the engine's")]
pub mod level_folder_writes {
    include!(concat!(env!("OUT_DIR"), "/level_folder_writes.rs"));
}

/// Canary: a fork does not wait for those inside.
#[allow(dead_code, unused_variables, clippy::all, reason = "the engine's, changed")]
pub mod gate_rushes {
    include!(concat!(env!("OUT_DIR"), "/gate_rushes.rs"));
}
/// Canary: whoever comes in does not look whether a fork is in flight.
#[allow(dead_code, clippy::all, reason = "the engine's, changed")]
pub mod gate_blind {
    include!(concat!(env!("OUT_DIR"), "/gate_blind.rs"));
}
/// Canary: a thread of ours is alone beside others.
#[allow(dead_code, unused_variables, clippy::all, reason = "the engine's, changed")]
pub mod gate_alone_beside {
    include!(concat!(env!("OUT_DIR"), "/gate_alone_beside.rs"));
}
/// Canary: the end of a vfork ends those below it, too.
#[allow(dead_code, clippy::all, reason = "the engine's, changed")]
pub mod gate_ends_all {
    include!(concat!(env!("OUT_DIR"), "/gate_ends_all.rs"));
}
/// Canary: a vfork has a note, also if its child may outlive its parent.
#[allow(dead_code, unused_variables, clippy::all, reason = "the engine's, changed")]
pub mod gate_notes_apart {
    include!(concat!(env!("OUT_DIR"), "/gate_notes_apart.rs"));
}
/// Canary: the end of a vfork ends none of its child's.
#[allow(dead_code, clippy::all, reason = "the engine's, changed")]
pub mod gate_ends_one {
    include!(concat!(env!("OUT_DIR"), "/gate_ends_one.rs"));
}
/// The gate; forks make way as long as it takes.
#[allow(dead_code, clippy::all, reason = "the engine's")]
pub mod gate_patient {
    include!(concat!(env!("OUT_DIR"), "/gate_patient.rs"));
}
/// Canary: forks make no way for who waits for them.
#[allow(dead_code, clippy::all, reason = "the engine's, changed")]
pub mod gate_makes_no_way {
    include!(concat!(env!("OUT_DIR"), "/gate_makes_no_way.rs"));
}

/// What per-CPU memory has of the system: of the machine, here.
#[allow(unsafe_code, dead_code, unused_imports, unused_variables, clippy::all, reason = "the engine's")]
pub mod space_memory {
    include!(concat!(env!("OUT_DIR"), "/space_memory.rs"));
}
/// Per-CPU memory as it is, but for two claims and small mappings.
#[allow(unsafe_code, dead_code, unused_imports, unused_variables, clippy::all, reason = "the engine's")]
pub mod space {
    include!(concat!(env!("OUT_DIR"), "/space.rs"));
}
/// Canary: a claim is used without a look at whose the chunk is now.
#[allow(unsafe_code, dead_code, unused_imports, unused_variables, clippy::all, reason = "the engine's, changed")]
pub mod space_claim_stays {
    include!(concat!(env!("OUT_DIR"), "/space_claim_stays.rs"));
}
/// Canary: a chunk is given back without a look at whether it is still empty.
#[allow(unsafe_code, dead_code, unused_imports, unused_variables, clippy::all, reason = "the engine's, changed")]
pub mod space_returns_blindly {
    include!(concat!(env!("OUT_DIR"), "/space_returns_blindly.rs"));
}
