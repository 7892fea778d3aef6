//! # The mailbox: what other processes ask of this one
//!
//! ```text
//! allotment tune, drain, purge, stat            this process
//!   lock on the file                             housekeeper sleeps on `bell`
//!   order, arguments, asked + 1 ──ring──►        serve: reads the order, does it,
//!   wait for `answered` = asked  ◄──wake──       status, results, answered = asked
//! ```
//! Whoever may write the file may ask: its owner. What stands on the mailbox is checked like any input. A request that
//! its asker has left is done or not, and the next one replaces it; one is served at a time, by the housekeeper alone.
//!
//! A process that publishes and has no housekeeper yet starts one at its [`FEW`]th slow allocation, or at one after
//! [`SOON`], or at the next one if somebody asks.
//!
//! Locks: those of what is asked for. Cost: two loads at each look of the housekeeper.

use super::{Environment, Heap};
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::{atomic::AtomicU32, sys};
use crate::cache::DrainMode;
use crate::heap::drain::DrainTarget;
use crate::knob::{BY_CGROUP, FIXED, Id, TABLE};
use crate::stat::board::{EVERY_CPU, IDLE_CPUS, KNOBS_MAX, Reply, Request};

/// Slow allocations after which a process is no trifle.
pub const FEW: u32 = 32;
/// Ticks before which not even they start a thread: the program may still be starting.
const EARLY: u64 = 1 << 25;
/// Ticks after which any slow allocation does.
const SOON: u64 = 1 << 28;

const _: () = assert!(TABLE.len() <= KNOBS_MAX);

impl<E: Environment> Heap<E> {
    /// What the housekeeper sleeps on. The heap is open.
    pub(super) fn bell(&self) -> &AtomicU32 {
        &self.cache.sets.board().mailbox.bell
    }

    /// Whether somebody waits for an answer.
    fn is_asked(&self) -> bool {
        let mailbox = &self.cache.sets.board().mailbox;
        // Acquire: the order was written before.
        mailbox.asked.load(Acquire) != mailbox.answered.load(Relaxed)
    }

    /// Whether a slow allocation should start the housekeeper because others look at this process.
    pub(super) fn is_watched(&self) -> bool {
        if !self.cache.sets.is_shared() {
            return false;
        }
        let age = self.cache.sets.clock.ticks().saturating_sub(self.born.load(Relaxed));
        let slow = self.slow.fetch_add(1, Relaxed);
        self.is_asked() || age > SOON || age > EARLY && slow >= FEW
    }

    /// Does what was asked for; false if nothing was.
    pub(super) fn serve(&self) -> bool {
        if !self.is_asked() {
            return false;
        }
        let mailbox = &self.cache.sets.board().mailbox;
        // Acquire: as in `is_asked`.
        let asked = mailbox.asked.load(Acquire);
        let arguments = [0, 1].map(|at: usize| mailbox.arguments[at].load(Relaxed));
        let mut results = [0; 8];
        let answer = match Request::from_word(mailbox.order.load(Relaxed)) {
            Request::None => Reply::Unknown,
            Request::Show if self.show() => Reply::Done,
            Request::Show => Reply::NoRoom,
            Request::Tune => self.tune(arguments[0], arguments[1]),
            Request::Drain => self.serve_drain(arguments, &mut results),
            Request::Purge => {
                results[0] = self.trim() as u64;
                Reply::Done
            }
        };
        mailbox.results.iter().zip(results).for_each(|(word, result)| word.store(result, Relaxed));
        mailbox.status.store(answer as u32, Relaxed);
        // Release: whoever sees the number sees the rest.
        mailbox.answered.store(asked, Release);
        sys::futex_wake_shared(&mailbox.answered);
        true
    }

    /// Sets a knob of a running heap.
    fn tune(&self, at: u64, value: u64) -> Reply {
        let Some((at, knob)) = usize::try_from(at).ok().and_then(|at| Some((at, TABLE.get(at)?))) else {
            return Reply::Range;
        };
        if !knob.takes(value) {
            return Reply::Range;
        }
        if FIXED.iter().any(|&fixed| fixed as usize == at) {
            return Reply::Fixed;
        }
        self.cache.knobs.set(at, value);
        if value == BY_CGROUP && [Id::SoftLimit, Id::HardLimit].iter().any(|&id| id as usize == at) {
            self.learn_limits_if_allowed();
        }
        self.publish_knobs();
        self.apply_profile();
        Reply::Done
    }

    /// Shows the knobs' values.
    pub(super) fn publish_knobs(&self) {
        let words = &self.cache.sets.board().knobs;
        (0..TABLE.len()).for_each(|at| words[at].store(self.cache.knobs.at(at), Relaxed));
    }

    fn serve_drain(&self, [cpu, way]: [u64; 2], results: &mut [u64; 8]) -> Reply {
        let which = match cpu {
            EVERY_CPU => DrainTarget::All,
            IDLE_CPUS => DrainTarget::Idle,
            cpu => match u32::try_from(cpu) {
                Ok(cpu) => DrainTarget::Cpu(cpu),
                Err(_) => return Reply::Range,
            },
        };
        let way = match way {
            0 => DrainMode::Auto,
            1 => DrainMode::Gentle,
            2 => DrainMode::Expedited,
            _ => return Reply::Range,
        };
        // (A filter may kill for a fence, and for a look at the threads.)
        if self.reclaim.keeper.is_confined() {
            return Reply::Confined;
        }
        let report = self.drain(which, way);
        results[..6].copy_from_slice(&[
            report.bytes,
            report.objects,
            report.reached as u64,
            report.unreached as u64,
            report.fences,
            report.answers,
        ]);
        Reply::Done
    }
}
