//! The bias, step by step: who may use a set, who asks for a barrier, and what stands there afterwards.
#![cfg(not(allotment_models))] // (The models compile the engine's files over a machine of their own.)

use super::*;
use crate::tests::threads;
use std::sync::mpsc::channel;

/// The name of the owner, and whether it is inside.
fn words(bias: &Bias) -> (usize, u32) {
    (bias.owner.load(Relaxed), bias.inside.load(Relaxed))
}

/// What a question answers, and how often it asked for a barrier, which the system gives or not.
fn ask(question: impl FnOnce(&mut dyn FnMut() -> bool) -> bool, given: bool) -> (bool, u32) {
    let mut asked = 0;
    let answer = question(&mut || {
        asked += 1;
        given
    });
    (answer, asked)
}
fn allows(bias: &Bias, given: bool) -> (bool, u32) {
    ask(|barrier| bias.allows(barrier), given)
}
fn take(bias: &Bias, given: bool) -> (bool, u32) {
    ask(|barrier| bias.take(barrier), given)
}
fn fence(bias: &Bias, given: bool) -> (bool, u32) {
    ask(|barrier| bias.fence(barrier), given)
}
/// In another thread.
fn elsewhere<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    threads::scope(|scope| scope.spawn(body).join().unwrap())
}

#[test]
fn nobodys_is_everybodys_under_locks() {
    for bias in [Bias::new(), Bias::default()] {
        assert_eq!((words(&bias), bias.index(), bias.is_granted(), bias.is_mine()), ((0, 0), 0, false, false));
        assert!(bias.enter().is_none());
        assert_eq!([allows(&bias, false), take(&bias, false), fence(&bias, false)], [(true, 0); 3]);
        assert_eq!(words(&bias), (0, 0));
        // What its last owner has not left a drain waits for.
        bias.inside.store(1, Relaxed);
        assert_eq!([fence(&bias, true), fence(&bias, false)], [(false, 0); 2]);
    }
}

#[test]
fn its_owner_is_inside_once_and_gives_it_up_outside() {
    let (bias, me) = (Bias::new(), sys::thread_pointer());
    bias.grant(7);
    assert_eq!((words(&bias), bias.index(), bias.is_granted(), bias.is_mine()), ((me, 0), 7, true, true));
    for _ in 0..2 {
        let inside = bias.enter().unwrap();
        assert_eq!(words(&bias), (me, 1));
        assert!(bias.enter().is_none(), "a handler above it");
        assert_eq!(words(&bias), (me, 1));
        assert_eq!([allows(&bias, true), take(&bias, true), fence(&bias, true)], [(false, 0); 3]);
        assert_eq!(words(&bias), (me, 1));
        drop(inside);
        assert_eq!(words(&bias), (me, 0));
        assert_eq!([allows(&bias, false), fence(&bias, false)], [(true, 0); 2]);
        assert_eq!(words(&bias), (me, 0));
    }
    assert_eq!((take(&bias, false), words(&bias)), ((true, 0), (0, 0)));
    assert!(!bias.is_mine() && bias.enter().is_none());
}

#[test]
fn another_thread_takes_it_away_by_a_barrier() {
    let (bias, me) = (Bias::new(), sys::thread_pointer());
    for question in [allows, take] {
        // Without one, nobody asks again, until the owner makes an end.
        bias.grant(0);
        elsewhere(|| {
            assert!(!bias.is_mine() && !bias.was_mine() && bias.is_granted() && bias.enter().is_none());
            assert_eq!((question(&bias, false), words(&bias)), ((false, 1), (me | GOING | DENIED, 0)));
            assert_eq!((question(&bias, true), words(&bias)), ((false, 0), (me | GOING | DENIED, 0)));
            assert!(!bias.is_granted());
        });
        assert!(!bias.is_mine() && bias.was_mine() && bias.enter().is_none());
        assert_eq!((question(&bias, false), words(&bias)), ((true, 0), (0, 0)));
        // At once.
        bias.grant(0);
        assert_eq!((elsewhere(|| question(&bias, true)), words(&bias)), ((true, 1), (0, 0)));
        // While the owner is inside it is nobody's, and one barrier is enough.
        bias.grant(0);
        let inside = bias.enter().unwrap();
        for asked in [1, 0] {
            let fenced = (me | GOING | FENCED, 1);
            assert_eq!((elsewhere(|| question(&bias, true)), words(&bias)), ((false, asked), fenced));
        }
        assert_eq!((question(&bias, true), words(&bias).1), ((false, 0), 1), "a handler above it");
        assert_eq!([elsewhere(|| fence(&bias, true)), fence(&bias, true)], [(false, 0); 2]);
        drop(inside);
        assert!(bias.enter().is_none());
        assert_eq!(elsewhere(|| fence(&bias, false)), (true, 0), "nor does a fence need another");
        assert_eq!((elsewhere(|| question(&bias, false)), words(&bias)), ((true, 0), (0, 0)));
    }
    // Another thread has said so, and had no barrier, while this one gets one.
    bias.grant(0);
    let both = |barrier: &mut dyn FnMut() -> bool| {
        bias.take(|| {
            assert_eq!(words(&bias).0, me | GOING, "said before the barrier");
            bias.owner.store(me | GOING | DENIED, Relaxed);
            barrier()
        })
    };
    assert_eq!((elsewhere(|| ask(both, true)), words(&bias)), ((true, 1), (0, 0)));
}

#[test]
fn a_fence_waits_for_an_owner_inside_and_takes_nothing_away() {
    let (bias, me) = (Bias::new(), sys::thread_pointer());
    bias.grant(0);
    let others = |given| elsewhere(|| fence(&bias, given));
    assert_eq!([others(true), others(false)], [(true, 1), (false, 1)]);
    let inside = bias.enter().unwrap();
    assert_eq!([others(true), others(false)], [(false, 1); 2], "it does not come out");
    assert_eq!(words(&bias), (me, 1));
    drop(inside);
    assert_eq!(others(true), (true, 1));
    // It comes out while it is waited for; on a busy machine perhaps too late.
    let comes_out = |_| {
        let (went, comes) = channel();
        let inside = bias.enter().unwrap();
        threads::scope(|scope| {
            let waits = scope.spawn(|| bias.fence(move || went.send(()).is_ok()));
            comes.recv().unwrap();
            drop(inside);
            waits.join().unwrap()
        })
    };
    assert!((0..1000).any(comes_out));
    assert_eq!((words(&bias), bias.nap.load(Relaxed)), ((me, 0), 0));
}

#[test]
fn a_child_keeps_what_is_its_own_threads() {
    let (bias, me) = (Bias::new(), sys::thread_pointer());
    bias.grant(5);
    let inside = bias.enter().unwrap();
    bias.inherit();
    assert_eq!((words(&bias), bias.index()), ((me, 1), 5));
    elsewhere(|| bias.inherit());
    assert_eq!((words(&bias), bias.is_granted()), ((0, 0), false));
    drop(inside);
    // Half taken away is nobody's either.
    bias.owner.store((me + 16) | GOING, Relaxed);
    bias.inside.store(1, Relaxed);
    bias.inherit();
    assert_eq!(words(&bias), (0, 0));
}
