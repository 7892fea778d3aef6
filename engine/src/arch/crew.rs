//! # Threads that the C library does not know
//!
//! ```text
//! block:  guard │ stack ──────────────► grows down │ errno … │ tp: self, self, … canary … rseq area │
//!               page                                          ▲ fs, a whole page's beginning
//! word:   0 free ──start──► TAKEN ──the kernel, when the thread is dead──► 0
//! ```
//! A thread of ours is made by the `clone` system call, and what the C library counts, locks and broadcasts to stays as
//! it was: its stdio locks nothing in a program of one thread, its last `pthread_exit` ends the process, and no lock of
//! its own is taken to start one, so that it may be started wherever memory is asked for or freed.
//!
//! Such a thread blocks every signal and has a *block* of its own: a stack above a guard page, and what code of the C
//! library finds relative to the thread pointer where it is called all the same (`sched_getcpu`, `memcpy`): its own
//! address, the stack protector's word, `errno`, and an rseq area that the thread registers itself. It touches nothing else
//! that is thread-local, and never allocates from the heap that it serves.
//! Where the area is refused, its `cpu_id` is no CPU: no set ever compares equal, and slow paths serve the thread.
//!
//! What the C library would do to threads that it knows, whoever has one of these does himself: they are gone
//! ([`Crew::wait_gone`]) before credentials or namespaces change.
//!
//! Blocks stay mapped and are used again; in a forked child no thread has one ([`Crew::gone`]).
//!
//! Units: threads. Invariant: a word is 0 only if no task uses its block. Locks: none. Cost: some 40 µs to start one,
//! five system calls more for a new block.
#![allow(unsafe_code)] // clone, the thread pointer's block

use super::atomic::Ordering::{Acquire, Relaxed, Release};
use super::atomic::{AtomicU32, AtomicUsize};
use super::sys::{self, Access, Errno};
use super::{PAGE, platform, rseq, task};

/// Threads at a time: as many as the knob `max_active` allows, the keeper, and one that is about to end.
const MOST: usize = 258;
/// Bytes of a stack: enough for the few frames of a drain, in a build without optimisation, too.
const STACK: usize = 128 * 1024;
/// Where fewer tasks than this are allowed (`RLIMIT_NPROC`), none of them is ours.
const FEW_TASKS: u64 = 64;
/// A word whose block is in use.
const TAKEN: u32 = u32::MAX;
/// ns of a nap of a thread that waits for others to be gone.
const NAP: u64 = 1_000_000;

/// One block.
#[derive(Debug)]
struct Block {
    /// 0: free.
    word: AtomicU32,
    /// The thread that has it, or had it.
    thread: AtomicU32,
    /// Where it is mapped; 0: nowhere yet.
    at: AtomicUsize,
}

/// The threads of a process.
#[derive(Debug)]
pub struct Crew {
    blocks: [Block; MOST],
    /// Blocks that were ever used: those at the beginning.
    used: AtomicU32,
}

impl Default for Crew {
    fn default() -> Self {
        Self::new()
    }
}

impl Crew {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        const fn free() -> Block {
            Block { word: AtomicU32::new(0), thread: AtomicU32::new(0), at: AtomicUsize::new(0) }
        }
        Self { blocks: [const { free() }; MOST], used: AtomicU32::new(0) }
    }

    fn used(&self) -> &[Block] {
        // Relaxed: each block has its own word.
        &self.blocks[..(self.used.load(Relaxed) as usize).min(MOST)]
    }

    /// Threads that run, or are being started.
    pub fn count(&self) -> u32 {
        self.used().iter().filter(|block| block.word.load(Relaxed) != 0).count() as u32
    }

    /// Starts a thread that runs `body` and never returns from it; it begins with [`enlist`]. Changes no `errno`.
    ///
    /// # Errors
    /// As `clone` and `mmap`; `EAGAIN` if there are too many; `ENOSYS` where this is not written for.
    pub fn start(&self, body: extern "C" fn(usize) -> !) -> Result<(), Errno> {
        // A program that may have few tasks needs them itself.
        if sys::task_limit() < FEW_TASKS {
            return Err(Errno::EAGAIN);
        }
        let place = Place::find();
        // A handler that forks here would leave a child with a block that is taken, and free.
        let signals = sys::Signals::block();
        if !signals.are_blocked() {
            // The thread would run the program's handlers.
            return Err(Errno::EAGAIN);
        }
        self.start_blocked(&place, body)
    }

    fn start_blocked(&self, place: &Place, body: extern "C" fn(usize) -> !) -> Result<(), Errno> {
        let (number, block) = self
            .blocks
            .iter()
            .enumerate()
            // Acquire: what the thread that had it did there is done.
            .find(|(_, block)| block.word.compare_exchange(0, TAKEN, Acquire, Relaxed).is_ok())
            .ok_or(Errno::EAGAIN)?;
        self.used.fetch_max(number as u32 + 1, Relaxed);
        let made = place.lay_out(block).and_then(|pointer| {
            sys::has_ours(true);
            // SAFETY: stack and block are the thread's own until it is dead and the kernel has cleared the word; it
            // touches of thread-local data only what `lay_out` made; every signal is blocked.
            unsafe { task::thread(pointer - place.below, block.word.as_ptr(), block.thread.as_ptr(), pointer, body) }
        });
        made.inspect_err(|_| block.word.store(0, Release))
    }

    /// The caller is the program's only thread, and none of ours is started any more: as single as before the first, if all are dead.
    pub fn resign(&self) {
        // Acquire: what they did is done.
        if self.used().iter().all(|block| block.word.load(Acquire) == 0) {
            sys::has_ours(false);
        }
    }

    /// Whether there is none, and the kernel is known to count none.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.used().iter().all(|block| block.word.load(Relaxed) == 0 && block.thread.load(Relaxed) == 0)
    }

    /// Waits until the kernel has seen every thread go that is told to, and its credentials, namespaces and files are
    /// nobody's any more; so many naps of a millisecond at most. False if one stays.
    pub fn wait_gone(&self, mut naps: u32) -> bool {
        let used = self.used();
        if self.is_gone() {
            // (A filter that was there before us may kill for calls that the program does not make.)
            return true;
        }
        let process = sys::pid();
        used.iter().all(|block| {
            loop {
                // Acquire: pairs with the kernel's store.
                let word = block.word.load(Acquire);
                // (The word is cleared a moment before the kernel counts it out.)
                if word == 0 && !sys::is_thread(process, block.thread.load(Relaxed)) {
                    block.thread.store(0, Relaxed);
                    return true;
                }
                if naps == 0 {
                    return false;
                }
                naps -= 1;
                if word == 0 {
                    sys::futex_wait_for(&block.word, 0, NAP / 20);
                } else {
                    sys::futex_wait_shared_for(&block.word, word, Some(NAP));
                }
            }
        })
    }

    /// In a forked child: they stayed behind, and their blocks are free.
    pub fn gone(&self) {
        for block in self.used() {
            block.thread.store(0, Relaxed);
            block.word.store(0, Release);
        }
        sys::has_ours(false);
    }
}

/// What lies where around a thread pointer of this process.
struct Place {
    /// Bytes of a block below the pointer, but for the stack; and from it on.
    below: usize,
    above: usize,
    /// Where the rseq area is, relative to it.
    area: Option<isize>,
}

/// Bytes of the rseq area that the kernel takes from everybody. (Longer ones, which the C library may have for its threads, spare
/// the kernel work at each switch; our threads sleep.)
const AREA: usize = 32;
/// What the ABI and the C library keep at the beginning of the thread's own block, in bytes: see `lay_out`.
const HEAD: usize = 64;

impl Place {
    fn find() -> Self {
        // (Where the C library reads its own area even if it has registered none.)
        Self::around(rseq::told().map(|told| told.offset).filter(|&offset| offset != 0), sys::errno_offset())
    }

    /// By where they are, relative to it.
    fn around(area: Option<isize>, errno: isize) -> Self {
        let (mut low, mut high) = (errno, HEAD as isize);
        if let Some(offset) = area {
            (low, high) = (low.min(offset), high.max(offset + AREA as isize));
        }
        let pages = |bytes: isize| bytes.max(0).unsigned_abs().next_multiple_of(PAGE);
        // (`errno` may lie above, too, where the thread pointer is at the beginning of it all.)
        Self { below: pages(-low), above: pages(high.max(errno + 8)), area }
    }

    /// Maps a block if it has never been, and writes what a new thread finds there; the thread pointer.
    fn lay_out(&self, block: &Block) -> Result<usize, Errno> {
        let bytes = PAGE + STACK + self.below + self.above;
        // Relaxed: the caller has the block.
        let mut at = block.at.load(Relaxed);
        if at == 0 {
            at = sys::map(0, bytes, Access::None)?;
            // SAFETY: ours, just mapped; the first page stays closed.
            if let Err(error) = unsafe { sys::protect(at + PAGE, bytes - PAGE, Access::ReadWrite) } {
                // SAFETY: as above, and nobody has seen it.
                let _ = unsafe { sys::unmap(at, bytes) };
                return Err(error);
            }
            block.at.store(at, Relaxed);
        }
        let pointer = at + PAGE + STACK + self.below;
        let head = pointer as *mut usize;
        // SAFETY: inside the block, which is the caller's.
        unsafe {
            // The pointer itself (as the ABI and as the C library find it), the words of the stack protector and of the
            // pointer guard.
            head.write(pointer);
            head.add(2).write(pointer);
            let creator = sys::thread_pointer() as *const usize;
            for word in platform::INHERITED {
                head.add(word).write(creator.add(word).read());
            }
            if let Some(area) = self.area {
                let area = (pointer as isize + area) as *mut u32;
                core::ptr::write_bytes(area.cast::<u8>(), 0, AREA);
                // No CPU, until it is registered.
                area.offset(rseq::CPU_ID / 4).write(u32::MAX);
            }
        }
        Ok(pointer)
    }
}

/// What a thread of ours does first: a name, and its rseq area.
pub fn enlist(name: &core::ffi::CStr) {
    if let Ok((offset, _)) = rseq::area() {
        // (Refused: `cpu_id` is no CPU, as before.)
        // SAFETY: the area of this thread, in a block that outlives it.
        let _ = unsafe { sys::register_rseq((sys::thread_pointer() as isize + offset) as usize, AREA) };
    }
    sys::name_thread(name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::atomic::AtomicU64;
    use crate::arch::tests::{fatal, in_a_single_child, of_this_process, refused, sleeps_until, status_of_a_child};

    /// What the thread of the test saw: its pointer, whether it is registered, blocked signals, CPU and node, its stack.
    static SAW: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];
    static GO: AtomicU32 = AtomicU32::new(0);

    extern "C" fn body(_: usize) -> ! {
        let told = 0_u8;
        enlist(c"allotment/test");
        SAW[0].store(sys::thread_pointer() as u64, Relaxed);
        if let Ok((offset, _)) = rseq::area() {
            SAW[1].store(u64::from(rseq::word(offset + rseq::CPU_ID)), Relaxed);
        }
        SAW[4].store((&raw const told) as u64, Relaxed);
        SAW[2].store(sys::set_signals(u64::MAX).unwrap_or(0), Release);
        // (By the C library's way: it may write errno, and reads its own area.)
        SAW[3].store(u64::from(sys::current_cpu()) + u64::from(sys::current_node()), Relaxed);
        while GO.load(Acquire) == 0 {
            sys::futex_wait(&GO, 0);
        }
        sys::exit(false, 0)
    }

    #[test]
    #[cfg_attr(allotment_other, ignore = "no `clone` is written there")]
    fn a_thread_has_a_block_of_its_own_and_leaves_it() {
        static CREW: Crew = Crew::new();
        let errno = || std::io::Error::last_os_error().raw_os_error();
        // SAFETY: refused, for an errno.
        unsafe { libc::close(-1) };
        let before = errno();
        for round in 0..50_u64 {
            SAW[2].store(0, Relaxed);
            GO.store(0, Relaxed);
            CREW.start(body).unwrap();
            assert!(CREW.count() == 1 && !sys::single_threaded());
            let tid = CREW.blocks[0].thread.load(Relaxed);
            assert!(sys::is_thread(sys::pid(), tid), "round {round}");
            while SAW[2].load(Acquire) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(of_this_process(&std::format!("task/{tid}/comm")), "allotment/test\n");
            let stack = CREW.blocks[0].at.load(Relaxed) + PAGE..SAW[0].load(Relaxed) as usize - Place::find().below;
            assert!(stack.len() == STACK && stack.contains(&(SAW[4].load(Relaxed) as usize)), "{stack:x?}");
            GO.store(1, Release);
            sys::futex_wake(&GO, 1);
            assert!(!CREW.is_gone() && CREW.wait_gone(1000) && CREW.is_gone() && CREW.count() == 0);
            assert!(!sys::is_thread(sys::pid(), tid));
            assert_eq!(errno(), before);
            assert!(!std::path::Path::new(&std::format!("/proc/self/task/{tid}")).exists());
            // SAFETY: as above.
            unsafe { libc::close(-1) };
            // All but those that nobody can block.
            assert_eq!(SAW[2].load(Relaxed), !(1 << 8 | 1 << 18), "round {round}");
            assert_ne!(SAW[0].load(Relaxed), sys::thread_pointer() as u64);
            if let Ok((offset, _)) = rseq::area()
                && (rseq::word(offset + rseq::CPU_ID) as i32) >= 0
            {
                assert!(SAW[1].load(Relaxed) < 8192, "registered");
            }
        }
        assert_eq!(CREW.used.load(Relaxed), 1, "one block, used again");
        CREW.blocks[0].word.store(TAKEN, Relaxed);
        CREW.gone();
        assert!(CREW.count() == 0 && CREW.is_gone() && CREW.wait_gone(0));
    }

    extern "C" fn ends_alone(_: usize) -> ! {
        sys::exit(false, 9)
    }
    extern "C" fn ends_all(_: usize) -> ! {
        sys::exit(true, 9)
    }
    extern "C" fn stays(_: usize) -> ! {
        while GO.load(Acquire) == 0 {
            sys::futex_wait(&GO, 0);
        }
        sys::exit(false, 0)
    }

    /// With one block in use as the words say.
    fn with(word: u32, thread: u32) -> Crew {
        let crew = Crew::new();
        crew.used.store(1, Relaxed);
        crew.blocks[0].word.store(word, Relaxed);
        crew.blocks[0].thread.store(thread, Relaxed);
        crew
    }

    #[test]
    fn a_thread_is_gone_when_its_word_is_clear_and_the_kernel_counts_it_no_more() {
        let me = sys::thread_id();
        for (word, thread, count, is_gone) in
            [(0, 0, 0, true), (TAKEN, 0, 1, false), (0, me, 0, false), (TAKEN, me, 1, false)]
        {
            let crew = with(word, thread);
            assert_eq!((crew.count(), crew.is_gone()), (count, is_gone), "{word} {thread}");
            assert_eq!((crew.wait_gone(0), crew.wait_gone(2)), (is_gone, is_gone), "{word} {thread}");
            crew.gone();
            assert!(crew.count() == 0 && crew.is_gone() && crew.blocks[0].thread.load(Relaxed) == 0);
        }
        let ended = crate::tests::threads::spawn(sys::thread_id).join().unwrap();
        let crew = with(0, ended);
        assert!(!crew.is_gone() && crew.wait_gone(10_000) && crew.is_gone());
        // Each nap is slept; who is gone is not asked for.
        let crew = with(0, me);
        assert!(sleeps_until(|| crew.wait_gone(u32::MAX), || crew.blocks[0].thread.store(0, Relaxed)));
        let crew = with(TAKEN, 0);
        assert!(sleeps_until(|| crew.wait_gone(u32::MAX), || crew.blocks[0].word.store(0, Relaxed)));
        fatal(libc::SYS_getpid, || assert!(crew.wait_gone(0)));
    }

    #[test]
    fn a_block_has_room_for_all_that_is_read_around_its_pointer() {
        let page = PAGE as isize;
        let areas =
            [None, Some(-32), Some(32), Some(2464), Some(page - 32), Some(page - 31), Some(-page), Some(-page - 1)];
        for area in areas {
            for errno in [-120, -4, 16, page - 8, page - 7, 2 * page, -page, -page - 1] {
                let place = Place::around(area, errno);
                let ranges: std::vec::Vec<_> =
                    [Some((0, HEAD as isize)), Some((errno, errno + 8)), area.map(|at| (at, at + AREA as isize))]
                        .into_iter()
                        .flatten()
                        .collect();
                let first = ranges.iter().map(|range| range.0).min().unwrap();
                let last = ranges.iter().map(|range| range.1).max().unwrap();
                let (below, above) = (place.below as isize, place.above as isize);
                assert!(below % page == 0 && (0..page).contains(&(below + first)), "{area:?} {errno}: {below}");
                assert!(above % page == 0 && (0..page).contains(&(above - last)), "{area:?} {errno}: {above}");
                assert_eq!(place.area, area);
            }
        }
        let place = Place::find();
        assert_eq!(place.area, rseq::told().map(|told| told.offset).filter(|&offset| offset != 0));
        // SAFETY: an address.
        assert_eq!(sys::thread_pointer() as isize + sys::errno_offset(), unsafe { libc::__errno_location() } as isize);
    }

    #[test]
    fn a_block_is_mapped_once_and_laid_out_for_each_thread() {
        let place = Place::find();
        let bytes = PAGE + STACK + place.below + place.above;
        // SAFETY: in a block, which is the test's.
        let word = |at: usize| unsafe { (at as *const usize).read() };
        let blocks =
            [const { Block { word: AtomicU32::new(0), thread: AtomicU32::new(0), at: AtomicUsize::new(0) } }; 4];
        for block in &blocks {
            let pointer = place.lay_out(block).unwrap();
            let at = block.at.load(Relaxed);
            assert_eq!(pointer, at + PAGE + STACK + place.below);
            // What a thread leaves there.
            // SAFETY: as above.
            unsafe { core::ptr::write_bytes((pointer - place.below) as *mut u8, 0xee, place.below + place.above) };
            assert_eq!((place.lay_out(block), block.at.load(Relaxed)), (Ok(pointer), at));
            assert_eq!((word(pointer), word(pointer + 16)), (pointer, pointer));
            for inherited in platform::INHERITED {
                assert_eq!(word(pointer + 8 * inherited), word(sys::thread_pointer() + 8 * inherited));
            }
            if let Some(area) = place.area {
                let area = (pointer as isize + area) as usize;
                assert_eq!([0, 8, 16, 24].map(|at| word(area + at)), [(u32::MAX as usize) << 32, 0, 0, 0]);
            }
        }
        // All of a block but the guard is open. (They lie side by side, as a rule: what lies behind one is another's guard.)
        for block in &blocks {
            let at = block.at.load(Relaxed);
            for page in (0..bytes).step_by(PAGE) {
                assert_eq!(sys::is_readable(at + page), page > 0, "{page:x}");
            }
        }
        for block in &blocks {
            // SAFETY: the test's own.
            unsafe { sys::unmap(block.at.load(Relaxed), bytes) }.unwrap();
        }
        let block = Block { word: AtomicU32::new(0), thread: AtomicU32::new(0), at: AtomicUsize::new(0) };
        if let Some(made) = refused(libc::SYS_mprotect, 12, || place.lay_out(&block)) {
            assert_eq!((made, block.at.load(Relaxed)), (Err(Errno::ENOMEM), 0));
        }
    }

    #[test]
    #[cfg_attr(allotment_other, ignore = "no `clone` is written there")]
    fn where_few_tasks_are_allowed_or_signals_cannot_be_blocked_none_is_started() {
        in_a_single_child(|| {
            for (tasks, is_tried) in [(0, false), (FEW_TASKS - 1, false), (FEW_TASKS, true)] {
                static CREW: Crew = Crew::new();
                let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                // SAFETY: the child's own.
                unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit) };
                limit.rlim_cur = tasks;
                // SAFETY: as above.
                if unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) } == 0 {
                    // (The kernel may refuse it, too.)
                    let started = CREW.start(ends_alone);
                    assert!(is_tried || started == Err(Errno::EAGAIN));
                    assert_eq!(CREW.used.load(Relaxed), u32::from(is_tried), "{tasks}");
                    assert!(CREW.wait_gone(10_000));
                }
            }
        });
        static CREW: Crew = Crew::new();
        let start = || (CREW.start(ends_alone), sys::Signals::block().are_blocked());
        if let Some(refused) = refused(libc::SYS_rt_sigprocmask, 1, start) {
            assert_eq!((refused, CREW.used.load(Relaxed)), ((Err(Errno::EAGAIN), false), 0));
        }
    }

    #[test]
    #[cfg_attr(allotment_other, ignore = "no `clone` is written there")]
    fn a_program_of_one_thread_is_single_again_when_ours_are_gone() {
        in_a_single_child(|| {
            static CREW: Crew = Crew::new();
            let single = || (sys::single_threaded(), sys::program_is_single());
            assert_eq!(single(), (true, true));
            for is_child in [false, true] {
                GO.store(0, Relaxed);
                CREW.start(stays).unwrap();
                CREW.resign();
                assert_eq!(single(), (false, true), "it lives");
                GO.store(1, Release);
                sys::futex_wake(&GO, 1);
                assert!(CREW.wait_gone(10_000));
                assert_eq!(single(), (false, true));
                if is_child {
                    CREW.gone()
                } else {
                    CREW.resign()
                }
                assert_eq!(single(), (true, true));
            }
            sys::share();
            assert_eq!(single(), (false, false));
        });
        crate::tests::threads::spawn(|| ()).join().unwrap();
        assert!(!sys::single_threaded() && !sys::program_is_single());
    }

    #[test]
    #[cfg_attr(allotment_other, ignore = "no `clone` is written there")]
    fn a_thread_ends_alone_or_with_its_process() {
        static CREW: Crew = Crew::new();
        let is_survived_by = |body: extern "C" fn(usize) -> !| {
            status_of_a_child(|| {
                CREW.start(body).unwrap();
                assert!(CREW.wait_gone(10_000));
            })
        };
        assert_eq!(is_survived_by(ends_alone), 0);
        assert_eq!(libc::WEXITSTATUS(is_survived_by(ends_all)), 9);
    }
}
