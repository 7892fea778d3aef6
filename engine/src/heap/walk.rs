//! # Walks over the whole: what is cached, what is free, and its check
//!
//! Units: objects, blocks. Locks: those of what is walked. Cost: all of it.

use super::state::{Environment, Heap};

impl<E: Environment> Heap<E> {
    /// Objects of a class that are in sets and barns; beside a fork, in sets without their barns.
    #[must_use]
    pub fn cached(&self, class: usize) -> usize {
        match self.enter() {
            Some(_inside) => self.cache.cached(class),
            None => self.cache.sets.cached(class),
        }
    }

    /// Free blocks by order, all zones; none that is known of in a torn child.
    #[must_use]
    pub fn buddyinfo(&self) -> [usize; crate::page::ORDERS] {
        let mut sum = [0; crate::page::ORDERS];
        let Some(_inside) = self.enter_patiently() else { return sum };
        for (node, zone) in self.pages.zones.iter().enumerate().filter(|(_, zone)| zone.managed() > 0) {
            sum.iter_mut()
                .zip(zone.buddyinfo(&self.pages.windows, self.cache.sets.board(), node))
                .for_each(|(sum, n)| *sum += n);
        }
        sum
    }

    /// Walks every structure; for tests, when nobody else uses the heap.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn verify(&self) {
        self.slab_source().verify();
        self.vmap().verify();
        let (windows, board) = (&self.pages.windows, self.cache.sets.board());
        self.pages.zones.iter().enumerate().for_each(|(node, zone)| zone.verify(windows, board, node));
    }
}
