//! # The heap profile: what a process shows of its samples
//!
//! A mapping of its own, beside the board: a file that only its owner can read, made with the first sample; private
//! memory where there can be no file.
//!
//! ```text
//!   0        4 KiB      260 KiB          4 MiB + 260 KiB
//!   ┌────────┬──────────┬────────────────┬─────────────┐
//!   │ Header │ modules  │ stacks         │ frames      │   each part filled from its beginning, never moved
//!   └────────┴──────────┴────────────────┴─────────────┘
//! ```
//! Units: bytes, but for objects, which are 65,536ths ([`OBJECT`]): a sample stands for so many objects as its weight is times its
//! size, and that is no whole number.
//!
//! Invariants: what a count says is filled before the count says so; a stack's frames and a module never change; every
//! word has one meaning under one [`VERSION`]. A sample is in `allocated` of its stack for ever and in `live` until it is freed.
//! Locks: writers have one (`heap::samples`), readers none: all words are relaxed atomics but the counts, which release.

use super::version::{Hash, fields};
use crate::arch::atomic::Ordering::Relaxed;
use crate::arch::atomic::{AtomicU32, AtomicU64};

/// First word of a profile ("ALOTHEAP", little endian).
pub const MAGIC: u64 = u64::from_le_bytes(*b"ALOTHEAP");
/// What a reader must know of a profile (see [`super::version`]): of another one nothing can be read.
pub const VERSION: u32 = Hash::new()
    .fields(fields!(Header: magic version pid mean start_ns samples live lost_room lost_busy lost_bytes modules stacks
        frames ended))
    .fields(fields!(Module: start end path))
    .fields(fields!(Stack: hash first depth samples allocated_bytes allocated_objects live live_bytes live_objects))
    .fields(&[("object", OBJECT as usize), ("depth", DEPTH), ("stacks", STACKS_AT), ("frames", FRAMES_AT)])
    .word();
/// One object.
pub const OBJECT: u64 = 1 << 16;
/// Most frames of a stack.
pub const DEPTH: usize = 64;
/// Behind the name of its file.
pub const HEAP_SUFFIX: &str = ".heap";
/// Environment: the id of the process that started this one and reads its profile after its end.
pub const HEIR_ENV: &str = "ALLOTMENT_HEIR";
/// Mean bytes between samples where a tracer is attached and the knob says nothing.
pub const TRACED_BYTES: u64 = 512 << 10;

/// Room for modules.
pub const MODULES: usize = 1024;
/// Room for stacks.
pub const STACKS: usize = 1 << 16;
/// Room for frames.
pub const FRAMES: usize = 1 << 21;
/// Where the modules begin.
pub const MODULES_AT: usize = 4096;
/// Where the stacks begin.
pub const STACKS_AT: usize = MODULES_AT + MODULES * size_of::<Module>();
/// Where the frames begin.
pub const FRAMES_AT: usize = STACKS_AT + STACKS * size_of::<Stack>();
/// Bytes of the whole mapping; few of them are ever filled.
pub const PROFILE_BYTES: usize = FRAMES_AT + FRAMES * 8;

/// The first page.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`]; stored last, so a reader that sees it sees the rest.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process.
    pub pid: AtomicU32,
    /// Mean bytes between samples now; 0 while it is off.
    pub mean: AtomicU64,
    /// `CLOCK_MONOTONIC` in ns when it was made.
    pub start_ns: AtomicU64,
    /// Samples taken.
    pub samples: AtomicU64,
    /// Of them, those not freed.
    pub live: AtomicU64,
    /// Samples that were due and not taken: no room here.
    pub lost_room: AtomicU64,
    /// The same: a signal's handler came between.
    pub lost_busy: AtomicU64,
    /// Bytes that all those would have stood for.
    pub lost_bytes: AtomicU64,
    /// Modules filled.
    pub modules: AtomicU32,
    /// Stacks filled.
    pub stacks: AtomicU32,
    /// Frames filled.
    pub frames: AtomicU32,
    /// 1 when the process has ended in the usual way.
    pub ended: AtomicU32,
}

/// A file that was mapped at an address of some stack.
#[repr(C)]
#[derive(Debug)]
pub struct Module {
    /// Where its first page was.
    pub start: AtomicU64,
    /// Behind its last.
    pub end: AtomicU64,
    /// Its path, zero behind it; empty for the program itself. (Eight bytes a word, little endian.)
    pub path: [AtomicU64; 30],
}

/// A place that allocates.
#[repr(C)]
#[derive(Debug)]
pub struct Stack {
    /// Of its frames.
    pub hash: AtomicU64,
    /// Its first frame (the innermost) among the frames.
    pub first: AtomicU32,
    /// How many it has.
    pub depth: AtomicU32,
    /// Samples ever.
    pub samples: AtomicU64,
    /// Bytes that they stand for.
    pub allocated_bytes: AtomicU64,
    /// Objects that they stand for.
    pub allocated_objects: AtomicU64,
    /// Samples not freed.
    pub live: AtomicU64,
    /// Bytes that they stand for.
    pub live_bytes: AtomicU64,
    /// Objects that they stand for.
    pub live_objects: AtomicU64,
}

const _: () = assert!(size_of::<Header>() <= MODULES_AT);
const _: () = assert!(size_of::<Module>() == 256 && size_of::<Stack>() == 64);

/// Bytes and objects that a sample stands for: of all allocations of `size` bytes a part of `1 − exp(−size / mean)` is
/// sampled, so each that is stands for one over that part of them.
#[must_use]
pub fn weight(size: u64, mean: u64) -> (u64, u64) {
    let size = size.max(1);
    if mean <= 1 {
        return (size, OBJECT);
    }
    let part = part(size as f64 / mean as f64);
    let (bytes, objects) = (size as f64 / part, OBJECT as f64 / part);
    // (`as` saturates.)
    ((bytes + 0.5) as u64, (objects + 0.5) as u64)
}

/// `1 − exp(−x)`, without the C library.
fn part(x: f64) -> f64 {
    if x > 40.0 {
        return 1.0;
    }
    // exp(−x) = exp(−x/2ⁿ)^(2ⁿ); in terms of what is missing from 1, so that a small x keeps its digits.
    let mut halvings = 0;
    let mut y = x;
    while y > 0.01 {
        y /= 2.0;
        halvings += 1;
    }
    let mut missing = y * (1.0 - y / 2.0 * (1.0 - y / 3.0 * (1.0 - y / 4.0 * (1.0 - y / 5.0))));
    for _ in 0..halvings {
        missing *= 2.0 - missing;
    }
    missing
}

/// Bytes to the next sample: exponentially distributed with this mean, from 64 random bits; at least 1.
#[must_use]
pub fn interval(random: u64, mean: u64) -> u64 {
    // −ln(u) of a u in (0, 1]: its exponent, and ln of a mantissa in [1, 2) by 2 atanh((m−1)/(m+1)).
    let u = random | 1;
    let zeros = u.leading_zeros();
    let mantissa = 1.0 + ((u << zeros) << 1) as f64 / 18_446_744_073_709_551_616.0;
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let (square, mut power, mut sum, mut odd) = (z * z, z, 0.0, 1.0);
    while odd < 24.0 {
        sum += power / odd;
        power *= square;
        odd += 2.0;
    }
    let logarithm = f64::from(zeros + 1) * core::f64::consts::LN_2 - 2.0 * sum;
    // Rounded up: then exactly the part of the formula is within `size` bytes.
    ((logarithm * mean as f64) as u64).saturating_add(1)
}

/// Adds to a word that one thread at a time changes.
pub fn add(word: &AtomicU64, by: u64) {
    // Relaxed, and no locked instruction: the writers' lock is held.
    word.store(word.load(Relaxed).wrapping_add(by), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_those_of_the_formula() {
        for size in [1, 16, 100, 4096, 1 << 19, 1 << 20, 1 << 24, 1 << 40] {
            for mean in [2_u64, 1000, 1 << 19, 1 << 30] {
                let (bytes, objects) = weight(size, mean);
                let part = -(-(size as f64) / mean as f64).exp_m1();
                let wanted = size as f64 / part;
                assert!((bytes as f64 - wanted).abs() <= 1.0 + wanted * 1e-9, "{size} {mean}: {bytes} {wanted}");
                let wanted = 65536.0 / part;
                assert!((objects as f64 - wanted).abs() <= 1.0 + wanted * 1e-9, "{size} {mean}: {objects} {wanted}");
            }
        }
        assert_eq!(weight(0, 1), (1, OBJECT));
        assert_eq!(weight(48, 1), (48, OBJECT));
    }

    #[test]
    fn intervals_are_minus_the_logarithm() {
        for random in [1, 2, 3, 0x1234_5678, 1 << 62, 1 << 63, u64::MAX / 3, u64::MAX] {
            let wanted = -((random | 1) as f64 / 18_446_744_073_709_551_616.0).ln() * 1e12;
            let found = interval(random, 1_000_000_000_000) as f64;
            assert!((found - wanted.max(1.0)).abs() < 10.0, "{random}: {found} {wanted}");
        }
    }

    #[test]
    fn what_is_sampled_stands_for_all() {
        // Sizes of several kinds, counted down as the heap does; a seed that is printed.
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random.wrapping_mul(0x2545_f491_4f6c_dd1d)
        };
        let mean = 10_000;
        for size in [16_u64, 1000, 30_000, 200_000] {
            let (mut left, mut bytes, mut squares) = (interval(draw(), mean), 0.0, 0.0);
            let count = 200_000;
            for _ in 0..count {
                if left > size {
                    left -= size;
                } else {
                    left = interval(draw(), mean);
                    let weight = weight(size, mean).0 as f64;
                    bytes += weight;
                    squares += weight * weight;
                }
            }
            let wanted = (size * count) as f64;
            assert!((bytes - wanted).abs() < 5.0 * f64::sqrt(squares) + wanted * 1e-6, "{size}: {bytes} {wanted}");
        }
    }
}
