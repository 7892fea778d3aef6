//! The drop of a huge structure takes no time: areas are freed lazily, as a whole, and go back to the system later, or to whoever
//! asks next. Against the system's malloc, which unmaps a large block while the caller waits.
//! `cargo run --release -p allotment --example huge_drop`

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Either of the two, so that one program can compare them: the switch turns while nothing of the other is alive that is freed later.
struct Either {
    is_system: AtomicBool,
}

/// Blocks smaller than this are always the system's, so that nothing but the tables is compared.
const LARGE: usize = 1 << 20;

impl Either {
    fn is_ours(&self, layout: Layout) -> bool {
        // Relaxed: only this program's one thread turns it.
        layout.size() >= LARGE && !self.is_system.load(Relaxed)
    }
}

#[allow(unsafe_code, reason = "GlobalAlloc is an unsafe trait")]
// SAFETY: each block goes back to where it came from, for `is_ours` says the same as when it was allocated.
unsafe impl GlobalAlloc for Either {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { if self.is_ours(layout) { allotment::Allotment.alloc(layout) } else { System.alloc(layout) } }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.is_ours(layout) {
                allotment::Allotment.dealloc(block, layout)
            } else {
                System.dealloc(block, layout)
            }
        }
    }
}

#[global_allocator]
static GLOBAL: Either = Either { is_system: AtomicBool::new(false) };

/// How long the drop takes of 256 columns of 4 MiB, all written to.
fn drop_takes() -> Duration {
    let table: Vec<Vec<u64>> = (0..256).map(|column| vec![column; (4 << 20) / size_of::<u64>()]).collect();
    let begin = Instant::now();
    drop(table);
    begin.elapsed()
}

fn main() {
    let ours = drop_takes();
    GLOBAL.is_system.store(true, Relaxed);
    let systems = drop_takes();
    println!("1 GiB dropped: {ours:.1?} on Allotment, {systems:.1?} on the system's malloc");
}
