//! # System calls
//!
//! Raw, so that nothing touches `errno`, no symbol can be interposed and a
//! call before libc is ready works. Every call returns the kernel's number:
//! `Ok(value)` or `Err(errno)`. Cost: one system call each.
//!
//! | room | has |
//! |---|---|
//! | `call` | the convention, the numbers, errors; faults for tests |
//! | `memory` | mappings |
//! | `futex`, `signal`, `clock` | waiting, signals of a thread, time |
//! | `process`, `cpu`, `single` | tasks; where a thread runs; whether there is one |
//! | `file`, `proc` | files, and what `/proc` says of this process |
//!
//! Each uses only those above it, and nobody outside names them: this is their door.

mod call;
mod clock;
mod cpu;
mod file;
mod futex;
mod memory;
mod proc;
mod process;
mod signal;
mod single;
#[cfg(test)]
mod tests;

pub use call::Errno;
#[cfg(test)]
pub use call::fault;
pub use clock::{Clock, now_ns, ticks};
pub use cpu::{cpus_allowed, current_cpu, current_node, errno_offset, membarrier, register_rseq, thread_pointer};
pub use file::{close, complain, create_private, entries, lines, link, open, read, slurp, takes, unlink, write};
pub use futex::{
    futex_wait, futex_wait_for, futex_wait_shared, futex_wait_shared_for, futex_wake, futex_wake_shared, is_readable,
};
pub use memory::{
    Access, Advice, Range, advise, advise_many, bind, give_back, grow, make_sure, map, map_again, map_charged,
    map_file, map_file_over, map_hole, map_over, memory_bytes, move_longer, move_pages, protect, resident, unmap,
};
pub use proc::{Tasks, cpus_told, end_with_leader, is_filtered, leader_lives, leader_status, tasks};
pub use process::{
    exit, is_huge_disabled, is_space_limited, is_thread, leave_session, name_thread, nameless_program, own_files,
    own_root, parent_pid, pid, prctl, task_limit, thread_id, trace, unshare, wait_and_leave, wait_for, wait_for_dead,
};
pub use signal::{Signals, set_signals, signal_wait};
#[cfg(test)]
pub use single::be_single;
pub(super) use single::has_ours;
pub use single::{program_is_single, share, single_threaded};
