//! Chunks that no space has, whose layout is given granule by granule.

extern crate std;

use crate::percpu::chunk::Chunk;
use crate::percpu::totals::Totals;
use crate::percpu::units::UNIT;
use std::boxed::Box;

/// A chunk and what its space would count.
pub struct Made {
    pub chunk: Box<Chunk>,
    pub totals: Totals,
}

/// One with memory that is never touched, and so many reserved granules.
pub fn made(reserved: u32) -> Made {
    let made = Made { chunk: Box::new(Chunk::new()), totals: Totals::new() };
    made.chunk.body.lock().begin(16 * UNIT, reserved, reserved != 0);
    made
}

/// One that is full, of allocations from each of `cuts` to the next, its bounds as low as may be.
pub fn full(cuts: &[u32]) -> Made {
    let made = made(0);
    let mut body = made.chunk.body.lock();
    for pair in cuts.windows(2) {
        body.put(pair[0], pair[1] - pair[0], &made.totals);
    }
    assert_eq!(body.free, 0);
    body.reach().fill(0);
    body.contig_hint = 0;
    drop(body);
    made
}
