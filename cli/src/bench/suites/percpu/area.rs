//! # The area map: what the seed replaced
//!
//! First fit over an array of areas, as Linux did until 4.13: each chunk has an array with the offset of every area,
//! free or not, in order. An allocation scans it from the first free area on, and splits one by moving the
//! rest of the array; a free finds its area by bisection, and joins it with its neighbours by moving the rest
//! back. Chunks are tried by the room that is left in them, fullest first, and passed over by `contig`, the largest
//! free area, which says nothing about alignment. Every allocation is zeroed.
#![allow(unsafe_code)] // maps and zeroes its memory

/// Bytes of a chunk, as Allotment's.
pub const UNIT: usize = 256 << 10;
const GRANULE: usize = 4;
/// Chunks at most.
const CHUNKS: usize = 8192;

/// Offset, and whether the area is allocated in its lowest bit.
type Area = u32;

struct Chunk {
    areas: Vec<Area>,
    free: usize,
    /// Largest free area.
    contig: usize,
    /// No free area lies before this one.
    first_free: usize,
}

/// The allocator.
pub struct AreaMap {
    base: usize,
    memory: usize,
    chunks: Vec<Chunk>,
    /// Chunks by the power of two of the room in them.
    slots: Vec<Vec<usize>>,
}

fn slot(free: usize) -> usize {
    if free < GRANULE { 0 } else { (free.ilog2() as usize).saturating_sub(2).max(1) }
}

impl AreaMap {
    /// Without chunks.
    pub fn new() -> Self {
        // SAFETY: a new mapping; untouched memory costs address space only.
        let memory = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), (CHUNKS + 1) * UNIT, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert!(memory != libc::MAP_FAILED, "no address space");
        Self {
            base: (memory as usize).next_multiple_of(UNIT),
            memory: memory as usize,
            chunks: Vec::new(),
            slots: vec![Vec::new(); 20],
        }
    }
    /// How many chunks there are.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }
    /// Bytes of the arrays.
    pub fn metadata(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.areas.capacity() * size_of::<Area>()).sum()
    }

    fn relocate(&mut self, chunk: usize, before: usize) {
        let after = slot(self.chunks[chunk].free);
        if after != before {
            self.slots[before].retain(|other| *other != chunk);
            self.slots[after].push(chunk);
        }
    }

    /// Allocates; the address.
    pub fn alloc(&mut self, size: usize, align: usize) -> Option<usize> {
        let size = size.next_multiple_of(GRANULE);
        let align = align.max(GRANULE);
        for at in slot(size)..self.slots.len() {
            for index in (0..self.slots[at].len()).rev() {
                let number = self.slots[at][index];
                if size <= self.chunks[number].contig
                    && let Some(offset) = self.chunks[number].alloc(size, align)
                {
                    self.relocate(number, at);
                    return Some(self.hand_out(number, offset, size));
                }
            }
        }
        if self.chunks.len() == CHUNKS {
            return None;
        }
        let number = self.chunks.len();
        let (free, contig) = (UNIT, UNIT);
        self.chunks.push(Chunk { areas: vec![0, UNIT as Area | 1], free, contig, first_free: 0 });
        let before = slot(UNIT);
        self.slots[before].push(number);
        let offset = self.chunks[number].alloc(size, align)?;
        self.relocate(number, before);
        Some(self.hand_out(number, offset, size))
    }

    fn hand_out(&self, chunk: usize, offset: usize, size: usize) -> usize {
        let address = self.base + chunk * UNIT + offset;
        // SAFETY: an area of a chunk that was free.
        unsafe { (address as *mut u8).write_bytes(0, size) };
        address
    }

    /// Takes it back.
    pub fn free(&mut self, address: usize) {
        let number = (address - self.base) / UNIT;
        let before = slot(self.chunks[number].free);
        self.chunks[number].give((address - self.base) % UNIT);
        self.relocate(number, before);
    }
}

impl Drop for AreaMap {
    fn drop(&mut self) {
        // SAFETY: as it was mapped.
        unsafe { libc::munmap(self.memory as *mut libc::c_void, (CHUNKS + 1) * UNIT) };
    }
}

impl Chunk {
    fn alloc(&mut self, size: usize, align: usize) -> Option<usize> {
        let (mut longest, mut seen_free) = (0, false);
        for at in self.first_free..self.areas.len() - 1 {
            if self.areas[at] & 1 == 1 {
                continue;
            }
            if !seen_free {
                self.first_free = at;
                seen_free = true;
            }
            let (begin, end) = (self.areas[at] as usize, (self.areas[at + 1] & !1) as usize);
            let start = begin.next_multiple_of(align);
            if start + size > end {
                longest = longest.max(end - begin);
                continue;
            }
            // The head and the tail that stay free.
            let (head, tail) = (start > begin, start + size < end);
            let parts = [begin as Area, start as Area | 1, (start + size) as Area];
            let new = &parts[usize::from(!head)..2 + usize::from(tail)];
            self.areas.splice(at..=at, new.iter().copied());
            if end - begin == self.contig && !tail && !head {
                self.contig = self.rest(at + 1).max(longest);
            } else if end - begin == self.contig {
                self.contig = self.rest(at).max(longest);
            }
            if !head {
                self.first_free = at + 1;
            }
            self.free -= size;
            return Some(start);
        }
        if !seen_free {
            self.first_free = self.areas.len() - 1;
        }
        // Nothing was large enough: unaligned, this is known now.
        if align == GRANULE {
            self.contig = longest;
        }
        None
    }

    /// The largest free area from one on.
    fn rest(&self, from: usize) -> usize {
        self.areas[from..].windows(2).filter(|two| two[0] & 1 == 0).map(|two| (two[1] & !1) - two[0]).max().unwrap_or(0)
            as usize
    }

    fn give(&mut self, offset: usize) {
        let at = self.areas.binary_search(&(offset as Area | 1)).expect("an allocated area");
        let end = (self.areas[at + 1] & !1) as usize;
        self.free += end - offset;
        self.areas[at] &= !1;
        let mut begin = at;
        if at + 1 < self.areas.len() - 1 && self.areas[at + 1] & 1 == 0 {
            self.areas.remove(at + 1);
        }
        if at > 0 && self.areas[at - 1] & 1 == 0 {
            self.areas.remove(at);
            begin = at - 1;
        }
        self.first_free = self.first_free.min(begin);
        let length = (self.areas[begin + 1] & !1) - self.areas[begin];
        self.contig = self.contig.max(length as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_split_and_joined() {
        let mut map = AreaMap::new();
        let all: Vec<usize> = (0..1000).map(|at| map.alloc(4 + at % 60, 1 << (at % 5)).expect("memory")).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 1000);
        assert!(all.iter().zip(0..).all(|(address, at)| address % (1 << (at % 5)) == 0));
        all.iter().step_by(2).for_each(|&address| map.free(address));
        all.iter().skip(1).step_by(2).for_each(|&address| map.free(address));
        assert_eq!((map.chunks(), map.chunks[0].areas.len(), map.chunks[0].contig), (1, 2, UNIT));
    }
}
