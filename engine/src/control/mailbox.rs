//! # The mailbox: what other processes ask of this one
//!
//! ```text
//! allotment tune, drain, purge, stat            this process
//!   lock on the file                             keeper sleeps on `bell`
//!   order, arguments, asked + 1 ──ring──►        serve: reads the order, does it,
//!   wait for `answered` = asked  ◄──wake──       status, results, answered = asked
//! ```
//! Whoever may write the file may ask: its owner. What stands on the mailbox is checked like any input. A request that
//! its asker has left is done or not, and the next one replaces it; one is served at a time, by the keeper alone.
//!
//! A process that publishes and has no keeper yet starts one when its youth is over
//! ([`Youth`](crate::reclaim::keeper::Youth)), or with the next slow allocation if somebody asks.
//!
//! Locks: those of what is asked for. Cost: two loads at each look of the keeper.

use super::texts;
use crate::arch::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::arch::sys;
use crate::cache::DrainMode;
use crate::heap::{Environment, Heap};
use crate::knob::{BY_CGROUP, FIXED, Id, TABLE};
use crate::reclaim::drain::DrainTarget;
use crate::stat::board::{EVERY_CPU, IDLE_CPUS, KNOBS_MAX, Reply, Request};

const _: () = assert!(TABLE.len() <= KNOBS_MAX);

/// Does what was asked for; false if nothing was.
pub fn serve<E: Environment>(heap: &Heap<E>) -> bool {
    if !heap.mm().is_asked() {
        return false;
    }
    let mailbox = &heap.cache().sets.board().mailbox;
    // Acquire: as in `is_asked`.
    let asked = mailbox.asked.load(Acquire);
    let arguments = [0, 1].map(|at: usize| mailbox.arguments[at].load(Relaxed));
    let mut results = [0; 8];
    let answer = match Request::from_word(mailbox.order.load(Relaxed)) {
        Request::None => Reply::Unknown,
        Request::Show if texts::publish(heap) => Reply::Done,
        Request::Show => Reply::NoRoom,
        Request::Tune => tune(heap, arguments[0], arguments[1]),
        Request::Drain => drain(heap, arguments, &mut results),
        Request::Purge => {
            results[0] = heap.trim() as u64;
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

/// Sets a knob of a running heap, by its position in [`TABLE`]; any thread may.
pub fn tune<E: Environment>(heap: &Heap<E>, at: u64, value: u64) -> Reply {
    let Some((at, knob)) = usize::try_from(at).ok().and_then(|at| Some((at, TABLE.get(at)?))) else {
        return Reply::Range;
    };
    if !knob.takes(value) {
        return Reply::Range;
    }
    if FIXED.iter().any(|&fixed| fixed as usize == at) {
        return Reply::Fixed;
    }
    heap.cache().knobs.set(at, value);
    if value == BY_CGROUP && [Id::SoftLimit, Id::HardLimit].iter().any(|&id| id as usize == at) {
        heap.mm().learn_limits_if_allowed();
    }
    heap.cache().publish_knobs();
    // (And the gates: what is of huge pages no fast path serves.)
    heap.apply_profile();
    if at == Id::SyncFree as usize && value != 0 {
        // What a front has room for does not leave memory.
        heap.trim();
    }
    Reply::Done
}

fn drain<E: Environment>(heap: &Heap<E>, [cpu, mode]: [u64; 2], results: &mut [u64; 8]) -> Reply {
    let target = match cpu {
        EVERY_CPU => DrainTarget::All,
        IDLE_CPUS => DrainTarget::Idle,
        cpu => match u32::try_from(cpu) {
            Ok(cpu) => DrainTarget::Cpu(cpu),
            Err(_) => return Reply::Range,
        },
    };
    let Some(mode) = DrainMode::from_word(mode) else { return Reply::Range };
    // (A filter may kill for a fence, and for a look at the threads.)
    if heap.is_confined() {
        return Reply::Confined;
    }
    let report = heap.drain(target, mode);
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
