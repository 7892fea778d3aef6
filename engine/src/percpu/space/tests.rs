//! Every invariant of a space, by a walk of all chunks.
#![allow(clippy::unwrap_used, unsafe_code)]

extern crate std;

use super::Space;
use crate::arch::atomic::Ordering::Relaxed;
use crate::percpu::chunk::{Body, Chunk, NO_SLOT};
use crate::percpu::claim::Claim;
use crate::percpu::slots::{SLOTS, slot_of};
use crate::percpu::totals::Totals;

impl Space {
    /// What an index allocates from.
    pub fn claim(&self, at: usize) -> &Claim {
        &self.claims[at]
    }
    /// The chunk that it has claimed.
    pub fn chunk_claimed(&self, at: usize) -> Option<&'static Chunk> {
        self.claimed(at)
    }
    /// What all chunks count together.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }
    /// What follows a free that has found a chunk listed.
    pub fn follow_free(&'static self, chunk: &'static Chunk) {
        self.relocate(chunk);
    }
    /// Whether nobody has its lock.
    pub fn is_unheld(&self) -> bool {
        self.state.try_lock().is_some()
    }

    /// Something of each chunk that has memory.
    pub fn bodies<T>(&'static self, look: impl Fn(&Body) -> T) -> std::vec::Vec<T> {
        let bodies = self.memory.chunks().map(|chunk| chunk.body.lock());
        bodies.filter(|body| body.base != 0).map(|body| look(&body)).collect()
    }

    /// Every invariant, while nobody else is here.
    pub fn verify(&'static self) {
        let state = self.state.lock();
        let (mut chunks, mut empty, mut told, mut listed) = (0, 0, 0_usize, std::vec![]);
        for chunk in self.memory.chunks() {
            let body = chunk.body.lock();
            if body.base == 0 {
                assert_eq!((body.owner, body.slot), (0, NO_SLOT));
                continue;
            }
            chunks += 1;
            empty += body.empty as isize;
            told = told.wrapping_add(body.folded() as usize);
            body.verify(&body.live());
            assert!(core::ptr::eq(self.memory.chunk_of(body.base).unwrap(), chunk));
            if body.owner == 0 {
                assert!(slot_of(body.contig()) <= body.slot || body.contig_hint < body.raise_at, "listed too low");
                listed.push((body.slot, &raw const *chunk));
                let is_kept = core::ptr::eq(state.idle, chunk);
                assert_eq!(is_kept, body.live == 0 && !body.first, "one without an allocation is the one that is kept");
            } else {
                assert_eq!(body.slot, NO_SLOT);
                assert!(!core::ptr::eq(state.idle, chunk), "claimed");
                assert!(core::ptr::eq(self.claimed(body.owner as usize - 1).unwrap(), chunk));
            }
        }
        assert_eq!(chunks, state.chunks);
        assert_eq!(empty, self.totals.empty().load(Relaxed));
        assert_eq!(told, self.totals.live().load(Relaxed));
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
