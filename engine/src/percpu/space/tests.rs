//! Every invariant of a space, by a walk of all chunks.
#![allow(clippy::unwrap_used, unsafe_code)]

extern crate std;

use super::Space;
use crate::arch::atomic::Ordering::Relaxed;
use crate::percpu::chunk::{Body, NO_SLOT};
use crate::percpu::slots::{SLOTS, slot_of};

impl Space {
    /// Something of each chunk that has memory.
    pub fn bodies<T>(&'static self, look: impl Fn(&Body) -> T) -> std::vec::Vec<T> {
        let bodies = self.memory.chunks().map(|chunk| chunk.body.lock());
        bodies.filter(|body| body.base != 0).map(|body| look(&body)).collect()
    }

    /// Every invariant, while nobody else is here.
    pub fn verify(&'static self) {
        let state = self.state.lock();
        let (mut chunks, mut empty, mut listed) = (0, 0, std::vec![]);
        for chunk in self.memory.chunks() {
            let body = chunk.body.lock();
            if body.base == 0 {
                assert_eq!((body.owner, body.slot), (0, NO_SLOT));
                continue;
            }
            chunks += 1;
            empty += body.empty as isize;
            body.verify(&body.live_from(0).map(|(start, end)| (start, end - start)).collect::<std::vec::Vec<_>>());
            assert!(core::ptr::eq(self.memory.chunk_of(body.base).unwrap(), chunk));
            if body.owner == 0 {
                assert!(slot_of(body.contig()) <= body.slot || body.contig_hint < body.raise_at, "listed too low");
                listed.push((body.slot, &raw const *chunk));
            } else {
                assert_eq!(body.slot, NO_SLOT);
                assert!(core::ptr::eq(self.claimed(body.owner as usize - 1).unwrap(), chunk));
            }
        }
        assert_eq!(chunks, state.chunks);
        assert_eq!(empty, self.totals.empty().load(Relaxed));
        let mut found = 0;
        for slot in 0..SLOTS as u32 {
            let mut at = state.slots.first(slot);
            // SAFETY: chunks live for ever.
            while let Some(chunk) = unsafe { at.as_ref() } {
                assert!(listed.contains(&(slot, at.cast_const())));
                found += 1;
                at = chunk.next.load(Relaxed);
            }
        }
        assert_eq!(found, listed.len());
    }
}
