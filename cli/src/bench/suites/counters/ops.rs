//! One operation of each contender, and the loop around it.
//!
//! | name | what it is |
//! |---|---|
//! | `plain` | unprotected: loses counts when threads meet on one word |
//! | `atomic` | one shared word, relaxed `fetch_add` |
//! | `padded` | a word and a cache line for each thread, `fetch_add` |
//! | `cmpxchg` | the seed's first attempt: read, then `cmpxchg` without LOCK, on a word of the thread's own |
//! | `signals` | the likeness of the seed's interrupt-off base: all signals blocked around a plain add |
//! | `allotment` | ours |
//!
//! The level counters of `plain`, `cmpxchg` and `signals` have a byte for each thread, a threshold and an
//! overstep, as the kernel's. They are not safe against migration and are nobody's counters: they
//! show what the operation costs.
#![allow(unsafe_code)] // an instruction that the compiler does not emit; system calls

use allotment::counter::{Comparison, EventCounter, LevelCounter, QuotaCounter};
use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};

/// A value on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(T);

/// Something that is counted with.
pub trait Counter: Sized + Sync {
    /// What a thread counts with.
    type Hand<'a>: Hand
    where
        Self: 'a;
    /// For so many threads.
    fn new(threads: usize) -> Result<Self, String>;
    /// For one of them.
    fn hand(&self, thread: usize) -> Self::Hand<'_>;
    /// What was counted, if nothing was lost: `None` where losing is part of it.
    fn value(&self) -> Option<i64>;
}

/// See [`Counter`].
pub trait Hand: Copy {
    /// Counts one more.
    fn up(self);
    /// Counts one less.
    fn down(self);
}

/// How a word is added to.
pub trait Way {
    /// Whether all threads may share a word and lose nothing.
    const SAFE: bool = false;
    /// Adds.
    fn add(word: &AtomicU64, n: u64);
}
/// Load, add, store.
#[derive(Clone, Copy, Debug)]
pub enum Plain {}
impl Way for Plain {
    #[inline(always)]
    fn add(word: &AtomicU64, n: u64) {
        word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
    }
}
/// `lock add`.
#[derive(Clone, Copy, Debug)]
pub enum Locked {}
impl Way for Locked {
    const SAFE: bool = true;
    #[inline(always)]
    fn add(word: &AtomicU64, n: u64) {
        word.fetch_add(n, Relaxed);
    }
}
/// Read, `cmpxchg` without LOCK, again.
#[derive(Clone, Copy, Debug)]
pub enum Cmpxchg {}
impl Way for Cmpxchg {
    #[inline(always)]
    fn add(word: &AtomicU64, n: u64) {
        loop {
            let old = word.load(Relaxed);
            if exchange(word, old, old.wrapping_add(n)) {
                return;
            }
        }
    }
}
/// All signals blocked around [`Plain`].
#[derive(Clone, Copy, Debug)]
pub enum Signals {}
impl Way for Signals {
    #[inline(always)]
    fn add(word: &AtomicU64, n: u64) {
        without_signals(|| Plain::add(word, n));
    }
}

/// Words: one, or one for each thread.
#[derive(Debug)]
pub struct Words<W, const SHARED: bool>(Vec<Padded<AtomicU64>>, PhantomData<fn(W)>);

/// A thread's word.
#[derive(Debug)]
pub struct Word<'a, W>(&'a AtomicU64, PhantomData<W>);
impl<W> Clone for Word<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<W> Copy for Word<'_, W> {}
impl<W: Way> Hand for Word<'_, W> {
    #[inline(always)]
    fn up(self) {
        W::add(self.0, 1);
    }
    #[inline(always)]
    fn down(self) {
        W::add(self.0, u64::MAX);
    }
}
impl<W: Way + 'static, const SHARED: bool> Counter for Words<W, SHARED> {
    type Hand<'a> = Word<'a, W>;
    fn new(threads: usize) -> Result<Self, String> {
        let words = if SHARED { 1 } else { threads };
        Ok(Self((0..words).map(|_| Padded::default()).collect(), PhantomData))
    }
    fn hand(&self, thread: usize) -> Word<'_, W> {
        Word(&self.0[thread % self.0.len()].0, PhantomData)
    }
    fn value(&self) -> Option<i64> {
        (W::SAFE || !SHARED).then(|| self.0.iter().map(|word| word.0.load(Relaxed) as i64).sum())
    }
}

/// `cmpxchg` without LOCK; whether it was done.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn exchange(word: &AtomicU64, old: u64, new: u64) -> bool {
    let found: u64;
    // SAFETY: reads and writes the word, which is this thread's.
    unsafe {
        std::arch::asm!("cmpxchg [{word}], {new}", word = in(reg) word.as_ptr(), new = in(reg) new,
            inlateout("rax") old => found, options(nostack));
    }
    found == old
}
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn exchange(word: &AtomicU64, old: u64, new: u64) -> bool {
    word.compare_exchange(old, new, Relaxed, Relaxed).is_ok()
}
/// The same on a byte.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn exchange_byte(byte: &AtomicU8, old: u8, new: u8) -> bool {
    let found: u8;
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("cmpxchg [{byte}], {new}", byte = in(reg) byte.as_ptr(), new = in(reg_byte) new,
            inlateout("al") old => found, options(nostack));
    }
    found == old
}
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn exchange_byte(byte: &AtomicU8, old: u8, new: u8) -> bool {
    byte.compare_exchange(old, new, Relaxed, Relaxed).is_ok()
}

/// Runs `body` with all signals blocked.
#[inline(always)]
fn without_signals(body: impl FnOnce()) {
    let (all, mut old) = (u64::MAX, 0_u64);
    // SAFETY: the kernel reads and writes eight bytes of ours.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut old, 8);
        body();
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const old, std::ptr::null_mut::<u64>(), 8);
    }
}

/// Ours: the whole is every thread's hand.
macro_rules! ours {
    ($($(#[$doc:meta])* $name:ident($inner:ty): $new:expr, |$counter:ident| $up:expr, $down:expr, $value:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(pub $inner);
        impl Counter for $name {
            type Hand<'a> = &'a Self;
            fn new(_: usize) -> Result<Self, String> {
                $new.map(Self).map_err(|error: allotment::counter::Error| error.to_string())
            }
            fn hand(&self, _: usize) -> &Self {
                self
            }
            fn value(&self) -> Option<i64> {
                let $counter = &self.0;
                Some($value)
            }
        }
        impl Hand for &$name {
            #[inline(always)]
            fn up(self) {
                let $counter = &self.0;
                $up;
            }
            #[inline(always)]
            fn down(self) {
                let $counter = &self.0;
                $down;
            }
        }
    )*};
}
ours! {
    /// Events.
    Event(EventCounter): EventCounter::new(),
        |counter| counter.add(1), counter.add(u64::MAX), counter.sum() as i64;
    /// Levels.
    Level(LevelCounter): LevelCounter::new(),
        |counter| counter.add(1), counter.add(-1), counter.exact();
    /// A quota of which up uses one and down returns it; the limit is not reached.
    Quota(QuotaCounter): QuotaCounter::with_batch(LIMIT, 64),
        |counter| black_box(counter.try_add(1)), counter.sub(1), counter.used() as i64;
    /// The same with its limit near: no stocks.
    Tight(QuotaCounter): QuotaCounter::with_batch(1 << 10, 1 << 10),
        |counter| black_box(counter.try_add(1)), counter.sub(1), counter.used() as i64;
    /// A quota by compare-and-swap on one shared word.
    AtomicQuota(Padded<AtomicU64>): Ok(Padded::default()),
        |counter| black_box(counter.0.fetch_update(Relaxed, Relaxed, |used| (used < LIMIT).then_some(used + 1)).is_ok()),
        counter.0.fetch_sub(1, Relaxed), counter.0.load(Relaxed) as i64;
}
const LIMIT: u64 = 1 << 40;

/// How a byte with a threshold is stepped.
pub trait ByteWay {
    /// Moves the byte by what `step` says; what spills.
    fn step(byte: &AtomicU8, step: impl Fn(u8) -> (u8, i8)) -> i8;
}
impl ByteWay for Plain {
    #[inline(always)]
    fn step(byte: &AtomicU8, step: impl Fn(u8) -> (u8, i8)) -> i8 {
        let (new, spilled) = step(byte.load(Relaxed));
        byte.store(new, Relaxed);
        spilled
    }
}
impl ByteWay for Cmpxchg {
    #[inline(always)]
    fn step(byte: &AtomicU8, step: impl Fn(u8) -> (u8, i8)) -> i8 {
        loop {
            let old = byte.load(Relaxed);
            let (new, spilled) = step(old);
            if exchange_byte(byte, old, new) {
                return spilled;
            }
        }
    }
}
impl ByteWay for Signals {
    #[inline(always)]
    fn step(byte: &AtomicU8, step: impl Fn(u8) -> (u8, i8)) -> i8 {
        let mut spilled = 0;
        without_signals(|| spilled = Plain::step(byte, step));
        spilled
    }
}

/// A byte for each thread, a threshold, a shared total.
#[derive(Debug)]
pub struct Bytes<W> {
    bytes: Vec<Padded<AtomicU8>>,
    total: Padded<AtomicI64>,
    threshold: i8,
    way: PhantomData<fn(W)>,
}
/// A thread's byte.
#[derive(Debug)]
pub struct Byte<'a, W>(&'a AtomicU8, &'a Bytes<W>);
impl<W> Clone for Byte<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<W> Copy for Byte<'_, W> {}
#[cold]
#[inline(never)]
fn spill(total: &AtomicI64, spilled: i8) {
    total.fetch_add(i64::from(spilled), Relaxed);
}
impl<W: ByteWay> Byte<'_, W> {
    #[inline(always)]
    fn add(self, delta: i8) {
        let threshold = self.1.threshold;
        let overstep = threshold / 2;
        let spilled = W::step(self.0, |old| {
            let new = (old as i8).wrapping_add(delta);
            if new > threshold {
                (-overstep as u8, new + overstep)
            } else if new < -threshold {
                (overstep as u8, new - overstep)
            } else {
                (new as u8, 0)
            }
        });
        if spilled != 0 {
            spill(&self.1.total.0, spilled);
        }
    }
}
impl<W: ByteWay> Hand for Byte<'_, W> {
    #[inline(always)]
    fn up(self) {
        self.add(1);
    }
    #[inline(always)]
    fn down(self) {
        self.add(-1);
    }
}
impl<W: ByteWay + 'static> Counter for Bytes<W> {
    type Hand<'a> = Byte<'a, W>;
    fn new(threads: usize) -> Result<Self, String> {
        Ok(Self {
            bytes: (0..threads).map(|_| Padded::default()).collect(),
            total: Padded::default(),
            // (At most 83, so that a sum of a byte does not wrap.)
            threshold: allotment::counter::default_threshold().min(80) as i8,
            way: PhantomData,
        })
    }
    fn hand(&self, thread: usize) -> Byte<'_, W> {
        Byte(&self.bytes[thread].0, self)
    }
    fn value(&self) -> Option<i64> {
        let bytes: i64 = self.bytes.iter().map(|byte| i64::from(byte.0.load(Relaxed) as i8)).sum();
        Some(self.total.0.load(Relaxed) + bytes)
    }
}

/// The shared total.
#[inline(always)]
pub fn approximate(counter: &Level) -> u64 {
    counter.0.approximate() as u64
}
/// With a value so far away that the bound decides.
#[inline(always)]
pub fn compare(counter: &Level) -> u64 {
    u64::from(counter.0.compare(1 << 50) == Comparison::Less)
}
/// The sum.
#[inline(always)]
pub fn exact(counter: &Level) -> u64 {
    counter.0.exact() as u64
}

/// One operation each, for who counts instructions (`tests/counters.rs`); not called.
macro_rules! counted {
    ($($name:ident($hand:ty);)*) => {
        $(
            #[unsafe(no_mangle)]
            #[inline(never)]
            fn $name(hand: $hand) {
                hand.up();
            }
        )*
        #[unsafe(no_mangle)]
        #[inline(never)]
        fn counted_read_approximate(counter: &Level) -> u64 {
            approximate(counter)
        }
        #[unsafe(no_mangle)]
        #[inline(never)]
        fn counted_read_compare(counter: &Level) -> u64 {
            compare(counter)
        }
        /// Keeps them in the program.
        pub fn keep() {
            $(black_box($name as fn($hand));)*
            black_box([counted_read_approximate, counted_read_compare]);
        }
    };
}
counted! {
    counted_event_plain(Word<'_, Plain>);
    counted_event_atomic(Word<'_, Locked>);
    counted_event_cmpxchg(Word<'_, Cmpxchg>);
    counted_event_allotment(&Event);
    counted_level_plain(Byte<'_, Plain>);
    counted_level_cmpxchg(Byte<'_, Cmpxchg>);
    counted_level_allotment(&Level);
    counted_quota_atomic(&AtomicQuota);
    counted_quota_allotment(&Quota);
}
