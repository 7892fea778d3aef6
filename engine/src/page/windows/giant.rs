//! # Windows of giant areas
//!
//! An area that no window has room for is mapped in one piece, and has a window of its own: metadata elsewhere, and a
//! number for its first page only. It goes back to the system whole (or its end does, where it shrinks); the number and the
//! metadata wait for the next.
//!
//! Locks: `made`, but not across giving back, which takes as long as there is memory in it. Cost: four system calls.
#![allow(unsafe_code)] // address space by number

use super::{FIRST_GIANT, Made, ROOT, Windows};
use crate::arch::PAGE;
use crate::arch::atomic::Ordering::{Relaxed, Release};
use crate::arch::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use crate::arch::sys::{self, Access, Advice, Errno};
use crate::page::pfn::{Pfn, WINDOW, WINDOW_SHIFT, WINDOWS};
use crate::page::window::{BLOCKS_AT, Giant, NOT_HUGE, Owner, Window};
use crate::stat::{Board, Level};

/// Bytes of a giant area's window's metadata: no blocks, and one descriptor.
pub(super) const META: usize = BLOCKS_AT + PAGE;

impl Windows {
    /// Reserves one window that begins with `bytes` (more than a window can hold) in one
    /// piece, opened; only its first page has a number. Aligned to `align` bytes where there is room for that.
    pub fn reserve_giant(&self, board: &Board, bytes: usize, align: usize) -> Option<Pfn> {
        let giant = self.make_giant(board, bytes, align);
        self.refused.store(giant.is_none(), Relaxed);
        giant
    }

    fn make_giant(&self, board: &Board, bytes: usize, align: usize) -> Option<Pfn> {
        let mut made = self.made.lock();
        let base = Self::aligned(bytes, align.max(WINDOW), made.count)?;
        let index = base >> WINDOW_SHIFT;
        let usable = index < ROOT && self.root[index].load(Relaxed) == 0;
        // SAFETY: fresh and ours.
        let opened = usable && unsafe { sys::protect(base, bytes, Access::ReadWrite) }.is_ok();
        let place = if opened { self.place(board, &mut made) } else { None };
        let Some((number, meta)) = place else {
            // SAFETY: fresh, ours and unused.
            let _ = unsafe { sys::unmap(base, bytes) };
            return None;
        };
        // SAFETY: ours; a refusal costs memory only.
        let _ = unsafe { sys::advise(base, bytes, Advice::NoHuge) };
        board.raise(Level::Reserved, bytes);
        let first = (base % WINDOW / PAGE) as u32;
        let window = Window {
            base: index << WINDOW_SHIFT,
            descs: Window::descs_from(meta + BLOCKS_AT, first),
            number,
            first,
            // (Only its first page is known, and has a descriptor: what is behind may be somebody else's when it has shrunk.)
            end: AtomicU32::new(first + 1),
            most: first + 1,
            described: AtomicU32::new(1),
            blocks: 0,
            zone: 0,
            owner: Owner::Giant,
            mixed: AtomicBool::new(false),
            huge: AtomicU32::new(NOT_HUGE),
            huge_end: AtomicU32::new(0),
            giant: Giant { bytes: AtomicUsize::new(bytes), ..Giant::default() },
        };
        Some(self.install(board, meta, window))
    }

    /// The giant area that begins at a page.
    #[must_use]
    pub fn giant(&self, pfn: Pfn) -> &Giant {
        &self.window(pfn).giant
    }

    /// Gives the address space of a giant area back; the window's number and metadata wait for the next. False if the
    /// system refuses; nothing has changed then.
    ///
    /// # Safety
    /// `pfn` came from [`Windows::reserve_giant`], nothing in the area is used, and nobody else gives it back.
    #[must_use]
    pub unsafe fn release_giant(&self, board: &Board, pfn: Pfn) -> bool {
        // SAFETY: the caller's promise. No lock: this takes as long as there is memory in it.
        self.leave(board, pfn, |base, bytes| unsafe { sys::unmap(base, bytes) })
    }

    /// The same for one whose pages go to `to`, where `longer` bytes are mapped; false if the system refuses: then it is as it was,
    /// but at `to` nothing may be mapped.
    ///
    /// # Safety
    /// `pfn` came from [`Windows::reserve_giant`], its owner gives the address up, and what is mapped at `to` is ours and not needed.
    #[must_use]
    pub unsafe fn move_giant(&self, board: &Board, pfn: Pfn, to: usize, longer: usize) -> bool {
        // SAFETY: the caller's promise.
        self.leave(board, pfn, |base, bytes| unsafe { sys::move_longer(base, bytes, to, longer) })
    }

    /// Gives the end of a giant area back, so that `bytes` (whole pages) of it remain; false if the system refuses.
    ///
    /// # Safety
    /// It is the caller's, and nothing in its end is needed.
    #[must_use]
    pub unsafe fn cut_giant(&self, board: &Board, pfn: Pfn, bytes: usize) -> bool {
        let giant = self.giant(pfn);
        let gone = giant.bytes.load(Relaxed) - bytes;
        // SAFETY: the caller's promise.
        let is_cut = unsafe { sys::unmap(self.address(pfn) + bytes, gone) }.is_ok();
        if is_cut {
            giant.bytes.store(bytes, Relaxed);
            board.lower(Level::Reserved, gone);
        }
        is_cut
    }

    /// A giant area's window is spare after `unmap`, which is told where it begins and how long it is.
    fn leave(&self, board: &Board, pfn: Pfn, unmap: impl FnOnce(usize, usize) -> Result<(), Errno>) -> bool {
        let window = self.window(pfn);
        let bytes = window.giant.bytes.load(Relaxed);
        let entry = &self.root[window.base >> WINDOW_SHIFT];
        // Before the address space is anybody's: another window may begin there at once.
        let known = entry.swap(0, Relaxed);
        // Where it begins, which need not be where its window does.
        let base = window.base + window.first as usize * PAGE;
        if unmap(base, bytes).is_err() {
            // Release: as in `install`.
            entry.store(known, Release);
            return false;
        }
        let mut made = self.made.lock();
        window.giant.bytes.store(made.spare as usize, Relaxed);
        made.spare = window.number;
        drop(made);
        board.lower(Level::Reserved, bytes);
        board.lower(Level::Mappings, 2);
        true
    }

    /// `len` bytes of reserved address space, aligned to `align`.
    pub(super) fn aligned(len: usize, align: usize, salt: u32) -> Option<usize> {
        // Where other mappings hardly ever are; the salt is the number of windows, so
        // that they follow each other. The kernel's own choice is the way out.
        let seed = (&raw const len) as usize >> 12 & 0xfff;
        let hint = ((FIRST_GIANT + seed + salt as usize) << WINDOW_SHIFT).next_multiple_of(align);
        if let Ok(at) = sys::map(hint, len, Access::None) {
            if at.is_multiple_of(align) {
                return Some(at);
            }
            // SAFETY: fresh, ours and unused.
            let _ = unsafe { sys::unmap(at, len) };
        }
        if let Ok(at) = sys::map(0, len + align, Access::None) {
            let base = at.next_multiple_of(align);
            // SAFETY: the ends of our own fresh reservation.
            unsafe {
                if base > at {
                    let _ = sys::unmap(at, base - at);
                }
                let _ = sys::unmap(base + len, at + align - base);
            }
            return Some(base);
        }
        None
    }

    /// A number and metadata for a giant area's window.
    fn place(&self, board: &Board, made: &mut Made) -> Option<(u32, usize)> {
        if made.spare != 0 {
            let number = made.spare;
            let window = self.windows[number as usize].load(Relaxed);
            // SAFETY: a spare window's metadata is there and nobody's.
            made.spare = unsafe { (*window).giant.bytes.load(Relaxed) } as u32;
            return Some((number, window as usize));
        }
        if made.count as usize + 1 >= WINDOWS {
            return None;
        }
        let meta = sys::map(0, META, Access::ReadWrite).ok()?;
        // SAFETY: fresh and ours; a refusal costs memory only.
        let _ = unsafe { sys::advise(meta, META, Advice::NoHuge) };
        board.raise(Level::Reserved, META);
        board.raise(Level::Mappings, 1);
        made.count += 1;
        Some((made.count, meta))
    }
}
