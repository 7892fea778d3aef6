//! # `reclaim`: memory that goes back
//!
//! What is free but still resident (dirty and lazily freed areas, dirty free pages) may be at most one part in `lazy_share`
//! of the recent high of the bytes in use ([`highs`]: of the last second; of the first 32 MiB a quarter of that), at least `lazy_floor`, at most `lazy_ceiling` for
//! each doubling of the CPUs; and on top of that the distance to this high. So a program that works in waves, or replaces
//! blocks of random sizes, does not fault its memory in anew, and what is resident never exceeds its own recent high by
//! more than the share; and never more than the soft limit leaves, and nothing under memory pressure
//! (see [`limits`]). More stays of a program that takes again what it [gave back](given). `trim` drains the per-CPU sets first
//! and then gives back everything. What a program that has become idle does not free any more, the [`keeper`] gives back.
//!
//! | free and resident | a free gives back |
//! |---|---|
//! | below the limit | nothing, or the next slice of a purge under way that no [`workers`] have taken over |
//! | above it | one slice of [`HELP`](policy::HELP) bytes; nothing if somebody else purges |
//! | above it, no keeper to be had | all that is above |
//! | above twice the limit | [`HELP_MORE`](policy::HELP_MORE) or as much as it allocates, beside others; from that above the limit it waits [`NAPS`](state::NAPS) naps at most where too many are at it |
//!
//! So a freer pays for what it adds (the kernel only schedules work, and its backlog grows without bound), and
//! no free waits for a whole purge: those run in slices, and end after one for which a fork waits. An allocation
//! above the limit gives back as much as it takes: what is resident does not grow by it. What one side of small and large blocks has left is
//! used by the other before that takes fresh memory ([`exchange`]).
//!
//! Lock: `purging` (to gather, to give pages back, to drain), before all others; slices of areas go without it,
//! see `vmap::flight`. Cost: a few loads when the levels have changed; a purge is system calls.
mod barren;
pub mod drain;
mod exchange;
pub mod free;
mod given;
mod highs;
pub mod keeper;
pub mod life;
pub mod limits;
pub mod mm;
pub mod policy;
mod purge;
pub mod reaper;
mod scarce;
mod squeeze;
mod state;
pub mod workers;

#[cfg(test)]
mod tests;

pub use mm::{Host, Mm};
pub use state::Reclaim;
