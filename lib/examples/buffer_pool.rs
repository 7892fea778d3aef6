//! A storage engine's buffer pool: frames are blocks of pages, aligned to their size, that direct I/O takes as they are.
//!
//! A page of the file is read into a frame when somebody asks for it, and stays until the clock's hand finds it not used since
//! the last round. The pool shrinks to half when it is asked to, and what it gives up goes back to the system in time. The
//! program's malloc is not replaced. `cargo run --release -p allotment --example buffer_pool`
#![allow(unsafe_code)] // blocks of pages are raw memory

use allotment::pages::{self, Flags};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;

/// 16 KiB: 2^2 pages.
const ORDER: usize = 2;
const FRAME: usize = 4096 << ORDER;

/// A block of pages that is ours, all of it initialised.
struct Frame {
    block: NonNull<u8>,
    page: u64,
    is_used: bool,
}

impl Frame {
    fn new() -> io::Result<Self> {
        let block = pages::alloc(ORDER, None, Flags::ZERO).map_err(io::Error::other)?;
        Ok(Self { block, page: u64::MAX, is_used: false })
    }
    fn bytes(&self) -> &[u8] {
        // SAFETY: ours and initialised, as long as the frame is; whoever writes has it alone.
        unsafe { std::slice::from_raw_parts(self.block.as_ptr(), FRAME) }
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.block.as_ptr(), FRAME) }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // SAFETY: ours, and gone.
        let freed = unsafe { pages::free(self.block) };
        debug_assert!(freed.is_ok());
    }
}

/// Pages of a file, the most used of them in memory.
struct Pool {
    file: File,
    frames: Vec<Frame>,
    at: HashMap<u64, usize>,
    hand: usize,
    reads: u64,
}

impl Pool {
    fn new(file: File, frames: usize) -> io::Result<Self> {
        let frames = (0..frames).map(|_| Frame::new()).collect::<io::Result<_>>()?;
        Ok(Self { file, frames, at: HashMap::new(), hand: 0, reads: 0 })
    }
    /// A page of the file.
    fn get(&mut self, page: u64) -> io::Result<&[u8]> {
        let number = match self.at.get(&page) {
            Some(&number) => number,
            None => self.read(page)?,
        };
        self.frames[number].is_used = true;
        Ok(self.frames[number].bytes())
    }
    /// Reads a page into the next frame that was not used since the hand was there.
    fn read(&mut self, page: u64) -> io::Result<usize> {
        loop {
            self.hand = (self.hand + 1) % self.frames.len();
            let frame = &mut self.frames[self.hand];
            if std::mem::take(&mut frame.is_used) {
                continue;
            }
            self.at.remove(&frame.page);
            frame.page = u64::MAX;
            self.file.read_exact_at(frame.bytes_mut(), page * FRAME as u64)?;
            frame.page = page;
            self.at.insert(page, self.hand);
            self.reads += 1;
            return Ok(self.hand);
        }
    }
    /// Keeps half the frames.
    fn shrink(&mut self) {
        let keep = self.frames.len().div_ceil(2);
        self.frames.truncate(keep);
        self.at.retain(|_, number| *number < keep);
        self.hand = 0;
    }
}

fn main() -> io::Result<()> {
    const PAGES: u64 = 4096;
    let path = std::env::temp_dir().join(format!("allotment-pool-{}", std::process::id()));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    for page in 0..PAGES {
        file.write_all(&[page as u8; FRAME])?;
    }
    let mut pool = Pool::new(file, 1024)?;
    let (mut random, asked) = (1_u64, 200_000);
    for number in 0..asked {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // (Nine in ten ask for the first tenth of the file.)
        let page = if random >> 60 == 0 { (random >> 32) % PAGES } else { (random >> 32) % (PAGES / 10) };
        let bytes = pool.get(page)?;
        assert!(bytes[0] == page as u8 && bytes[FRAME - 1] == page as u8);
        if number == asked / 2 {
            pool.shrink();
        }
    }
    println!("{asked} asked for, {} read, {} frames of {FRAME} bytes", pool.reads, pool.frames.len());
    Ok(())
}
