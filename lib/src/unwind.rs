//! # Who allocates: the stack, without allocating
//!
//! ```text
//!  pc ─► _dl_find_object (no lock) ─► .eh_frame_hdr ─► binary search ─► FDE ─► rules ─► caller's registers
//!          │ nothing there (code made at run time), or a rule that only an expression can say
//!          └─► the frame pointer, if it leads up the stack to an address of code
//! ```
//! The tables are those that exceptions use: in every file of x86-64 and aarch64, stripped or not, with frame pointers or
//! without. Frames of signal handlers are left by the registers that the kernel saved. Where the C library cannot be
//! asked (glibc before 2.35) and on other processors: frame pointers only.
//!
//! Invariant: **reading never faults.** The stack is read from the stack pointer upwards, page by page, each only
//! after the kernel has said that it can be read, and only as far as all pages between can; a caller's frame
//! is never below its callee's. The tables lie in mappings of the file that the C library
//! has just found.
//!
//! Cost: ≈ 0.5 µs a frame; 3 KiB of stack. Lock: that of the samples, of which the caller has a turn (the tables' rows lie
//! in a static: they are too large for a small stack); whoever comes without finds it taken and goes by frame pointers.
#![allow(unsafe_code)] // registers, tables and stacks

use allotment_engine::arch::stack as registers;
use allotment_engine::arch::{PAGE, sys};
use core::ffi::{CStr, c_char, c_int, c_void};

/// How far up a stack is looked.
const REACH: usize = 8 << 20;

/// glibc's `struct dl_find_object`, with room behind.
#[repr(C)]
#[derive(Clone, Copy)]
struct Found {
    flags: u64,
    start: usize,
    end: usize,
    link: *const Link,
    tables: usize,
    reserved: [u64; 9],
}

/// The public beginning of glibc's `struct link_map`.
#[repr(C)]
struct Link {
    bias: usize,
    name: *const c_char,
}

/// The file mapped at an address, if the C library can say so.
fn find(address: usize) -> Option<Found> {
    let finder = registers::finder();
    if finder == 0 {
        return None;
    }
    let mut found = Found { flags: 0, start: 0, end: 0, link: core::ptr::null(), tables: 0, reserved: [0; 9] };
    // SAFETY: the C library's function; it takes no lock and fills 96 bytes.
    let result = unsafe {
        let finder: extern "C" fn(*const c_void, *mut Found) -> c_int = core::mem::transmute(finder);
        finder(address as *const c_void, &raw mut found)
    };
    (result == 0).then_some(found)
}

/// The name of the file mapped at an address, as the loader knows it: empty for the program itself.
#[cfg(any(allotment_preload, not(allotment_capi)))]
pub fn file_name(address: usize) -> Option<&'static CStr> {
    let link = find(address)?.link;
    // SAFETY: the C library's description of a file that is mapped; the caller asks for one that stays.
    unsafe { (!link.is_null() && !(*link).name.is_null()).then(|| CStr::from_ptr((*link).name)) }
}

/// The file mapped at an address: its name into `path` (if that has room) with a zero behind, where it begins and ends.
pub fn module(address: usize, path: &mut [u8]) -> Option<(usize, usize)> {
    let found = find(address)?;
    if path.is_empty() {
        return Some((found.start, found.end));
    }
    // SAFETY: the C library's description of a file that is mapped, as long as code of it is on our stack.
    let name = unsafe {
        if found.link.is_null() || (*found.link).name.is_null() {
            return None;
        }
        CStr::from_ptr((*found.link).name).to_bytes()
    };
    if name.is_empty() && !crate::heap::HEAP.is_confined() {
        let room = path.len() - 1;
        let length = sys::link(c"/proc/self/exe", &mut path[..room]).map_or(0, <[u8]>::len);
        path[length] = 0;
        return Some((found.start, found.end));
    }
    let length = name.len().min(path.len() - 1);
    path[..length].copy_from_slice(&name[..length]);
    path[length] = 0;
    Some((found.start, found.end))
}

/// The stack above an address, as far as it can be read.
struct Stack {
    from: usize,
    sure: usize,
}

impl Stack {
    fn above(from: usize) -> Self {
        Self { from, sure: from & !(PAGE - 1) }
    }
    /// The word at an address.
    fn word(&mut self, at: usize) -> Option<usize> {
        if at < self.from || at - self.from > REACH || !at.is_multiple_of(size_of::<usize>()) {
            return None;
        }
        while self.sure <= at {
            if !sys::is_readable(self.sure) {
                return None;
            }
            self.sure += PAGE;
        }
        // SAFETY: on a page of our own stack, or connected with it, that can be read.
        Some(unsafe { (at as *const usize).read_volatile() })
    }
}

/// The return addresses of who called, innermost first and without those of this library; how many.
#[inline(never)]
pub fn stack(into: &mut [usize]) -> usize {
    let mut walk = Walk::new();
    let mut depth = 0;
    while depth < into.len() && walk.step() {
        let pc = walk.pc();
        if pc < PAGE || depth > 0 && walk.is_stuck() {
            break;
        }
        if depth == 0 && own(pc) {
            continue;
        }
        into[depth] = pc;
        depth += 1;
    }
    depth
}

/// Whether an address is code of this library, which hands out memory and asks for none.
#[cfg(allotment_capi)]
pub fn own(pc: usize) -> bool {
    let here = stack as *const () as usize;
    find(here).is_some_and(|found| (found.start..found.end).contains(&pc))
}
/// Here the library is a part of the program: the command leaves its frames out by name.
#[cfg(not(allotment_capi))]
fn own(_: usize) -> bool {
    false
}

/// The next frame by the frame pointer: its own, and the return address behind it.
fn by_pointer(stack: &mut Stack, frame: usize, above: usize) -> Option<(usize, usize)> {
    if frame < above {
        return None;
    }
    let next = stack.word(frame)?;
    let pc = stack.word(frame + size_of::<usize>())?;
    let pc = registers::plain(pc);
    (pc >= PAGE && (next == 0 || next > frame)).then_some((next, pc))
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(allotment_other)))]
pub use tables::Walk;

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(allotment_other)))]
mod tables {
    use super::{Found, Stack, by_pointer, find};
    use allotment_engine::arch::stack::{
        self as registers, FRAME, LINK, RETURN, Registers, SAVED, SIGNAL_AT, SIGNAL_ORDER, STACK,
    };
    use core::cell::UnsafeCell;
    use core::mem::MaybeUninit;
    use core::sync::atomic::AtomicBool;
    use core::sync::atomic::Ordering::{Acquire, Release};
    use gimli::{
        BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, Register, RegisterRule, UnwindContext,
        UnwindContextStorage, UnwindSection, UnwindTableRow,
    };

    /// Room for the rules of a row: the registers that calls keep and the return address. (More are tables of hand-written
    /// code: the walk goes on by frame pointers.)
    struct Storage;
    impl UnwindContextStorage<usize> for Storage {
        type Rules = [(Register, RegisterRule<usize>); SAVED];
        type Stack = [UnwindTableRow<usize, Self>; 3];
    }

    /// The rows of one table at a time.
    struct Rows {
        taken: AtomicBool,
        context: UnsafeCell<MaybeUninit<UnwindContext<usize, Storage>>>,
    }
    // SAFETY: the context is reached by whoever has set `taken`.
    unsafe impl Sync for Rows {}
    static ROWS: Rows = Rows { taken: AtomicBool::new(false), context: UnsafeCell::new(MaybeUninit::uninit()) };

    /// The right to the rows.
    struct Taken;
    impl Taken {
        fn new() -> Option<Self> {
            // Acquire pairs with the Release of the one before.
            (!ROWS.taken.swap(true, Acquire)).then_some(Self)
        }
        /// Made anew, and not in the frame of who walks.
        #[inline(never)]
        fn context(&mut self) -> &mut UnwindContext<usize, Storage> {
            // SAFETY: ours while `self` lives.
            unsafe { (*ROWS.context.get()).write(UnwindContext::new_in()) }
        }
    }
    impl Drop for Taken {
        fn drop(&mut self) {
            ROWS.taken.store(false, Release);
        }
    }

    /// A walk up the stack.
    pub struct Walk {
        stack: Stack,
        now: Registers,
        /// The frame before ended here.
        cfa: usize,
        /// The frame's address is where it was interrupted, and not behind a call.
        exact: bool,
        is_stuck: bool,
    }

    impl Walk {
        #[inline(always)]
        pub fn new() -> Self {
            let now = registers::registers();
            Self { stack: Stack::above(now[STACK]), now, cfa: now[STACK], exact: true, is_stuck: false }
        }
        /// The address of this frame's code: a return address, or where it was interrupted.
        pub fn pc(&self) -> usize {
            self.now[RETURN]
        }
        pub fn is_stuck(&self) -> bool {
            self.is_stuck
        }

        /// To the caller; false at the end.
        pub fn step(&mut self) -> bool {
            // A call may be a function's last instruction: its own bytes decide.
            let pc = self.pc() - usize::from(!self.exact);
            let result = match find(pc) {
                Some(found) => match self.by_tables(&found, pc) {
                    Err(Stop::End) => return false,
                    Err(Stop::Unknown) => None,
                    Ok(next) => Some(next),
                },
                None => None,
            };
            let next = match result {
                Some(next) => next,
                None => match by_pointer(&mut self.stack, self.now[FRAME], self.cfa) {
                    Some((frame, pc)) => {
                        let mut next = self.now;
                        next[STACK] = self.now[FRAME] + 16;
                        (next[FRAME], next[RETURN]) = (frame, pc);
                        self.exact = false;
                        next
                    }
                    None => return false,
                },
            };
            self.is_stuck = next[RETURN] == self.now[RETURN] && next[STACK] == self.now[STACK];
            self.now = next;
            self.cfa = next[STACK];
            next[RETURN] != 0
        }

        /// The caller's registers by the tables of a file.
        fn by_tables(&mut self, found: &Found, pc: usize) -> Result<Registers, Stop> {
            if found.tables < found.start || found.tables >= found.end {
                return Err(Stop::Unknown);
            }
            // To the end of the file's segment that holds the tables: its length stands in the program header.
            let end = segment_end(found).ok_or(Stop::Unknown)?;
            let bytes = |from: usize| {
                // SAFETY: from an address of the tables to the end of their segment, which is mapped while the code is on
                // our stack, and which nobody writes to.
                unsafe { core::slice::from_raw_parts(from as *const u8, end - from) }
            };
            let bases = BaseAddresses::default().set_eh_frame_hdr(found.tables as u64);
            let header = EhFrameHdr::new(bytes(found.tables), NativeEndian).parse(&bases, 8)?;
            let gimli::Pointer::Direct(frames) = header.eh_frame_ptr() else { return Err(Stop::Unknown) };
            let frames_at = usize::try_from(frames).map_err(|_| Stop::Unknown)?;
            if frames_at < found.start || frames_at >= end {
                return Err(Stop::Unknown);
            }
            let bases = bases.set_eh_frame(frames);
            let mut frames = EhFrame::from(EndianSlice::new(bytes(frames_at), NativeEndian));
            if cfg!(target_arch = "aarch64") {
                // (Its own instruction: from here on the return address is signed.)
                frames.set_vendor(gimli::Vendor::AArch64);
            }
            let table = header.table().ok_or(Stop::Unknown)?;
            let fde = table.fde_for_address(&frames, &bases, pc as u64, EhFrame::cie_from_offset)?;
            // SAFETY: code of a file that is mapped.
            if fde.is_signal_trampoline() || unsafe { registers::is_trampoline(self.pc()) } {
                return self.interrupted();
            }
            let mut taken = Taken::new().ok_or(Stop::Unknown)?;
            let row = fde.unwind_info_for_address(&frames, &bases, taken.context(), pc as u64)?;
            let cfa = match *row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => {
                    let base = *self.now.get(usize::from(register.0)).ok_or(Stop::Unknown)?;
                    base.wrapping_add_signed(offset as isize)
                }
                CfaRule::Expression(_) => return Err(Stop::Unknown),
            };
            // Stacks grow downwards: a caller's frame is above its callee's.
            if cfa < self.cfa || cfa == self.cfa && !self.exact {
                return Err(Stop::End);
            }
            let mut next = self.now;
            next[STACK] = cfa;
            for (number, word) in next.iter_mut().enumerate() {
                match row.register(Register(number as u16)) {
                    Some(RegisterRule::Offset(offset)) => {
                        *word = self.stack.word(cfa.wrapping_add_signed(offset as isize)).ok_or(Stop::End)?;
                    }
                    Some(RegisterRule::ValOffset(offset)) => *word = cfa.wrapping_add_signed(offset as isize),
                    Some(RegisterRule::Register(other)) => {
                        *word = *self.now.get(usize::from(other.0)).ok_or(Stop::Unknown)?;
                    }
                    // The outermost frame has no return address.
                    Some(RegisterRule::Undefined) if number == LINK => return Err(Stop::End),
                    None if number == LINK && LINK == RETURN => return Err(Stop::End),
                    None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => {}
                    _ => return Err(Stop::Unknown),
                }
            }
            next[RETURN] = registers::plain(next[LINK]);
            self.exact = false;
            Ok(next)
        }

        /// Out of a signal's handler: the kernel's `ucontext` lies at the stack pointer.
        fn interrupted(&mut self) -> Result<Registers, Stop> {
            let mut next = self.now;
            for (at, number) in SIGNAL_ORDER.into_iter().enumerate() {
                next[number] = self.stack.word(self.now[STACK] + SIGNAL_AT + at * 8).ok_or(Stop::End)?;
            }
            // (A handler on a stack of its own: the interrupted one is elsewhere.)
            self.stack = Stack::above(next[STACK]);
            self.cfa = next[STACK];
            self.exact = true;
            Ok(next)
        }
    }

    /// Why the tables lead no further.
    enum Stop {
        /// This is the outermost frame.
        End,
        /// They do not say; another way may.
        Unknown,
    }

    impl From<gimli::Error> for Stop {
        fn from(_: gimli::Error) -> Self {
            Self::Unknown
        }
    }

    /// Where the segment ends that holds a file's tables, by the file's own header.
    fn segment_end(found: &Found) -> Option<usize> {
        const LOAD: u32 = 1;
        // SAFETY: the C library maps a file from its first page on, whose beginning is the ELF header; what
        // has another beginning is left alone. The program headers follow it on that page.
        unsafe {
            let at = found.start as *const u8;
            if core::slice::from_raw_parts(at, 4) != b"\x7fELF" {
                return None;
            }
            let headers = at.add(32).cast::<usize>().read();
            let (size, count) = (at.add(54).cast::<u16>().read() as usize, at.add(56).cast::<u16>().read() as usize);
            if size < 56 || headers + size * count > 4096 {
                return None;
            }
            let segment = |number: usize| {
                let header = at.add(headers + size * number);
                let word = |offset: usize| header.add(offset).cast::<usize>().read();
                (header.cast::<u32>().read(), word(16), word(40))
            };
            // The lowest address of the file's own counting is `start`.
            let lowest = (0..count).map(segment).find(|&(kind, ..)| kind == LOAD)?.1 & !4095;
            let tables = found.tables - found.start + lowest;
            let (_, from, bytes) = (0..count)
                .map(segment)
                .find(|&(kind, from, bytes)| kind == LOAD && (from..from + bytes).contains(&tables))?;
            let end = found.start + from - lowest + bytes;
            (end <= found.end).then_some(end)
        }
    }
}

#[cfg(any(allotment_other, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub use pointers::Walk;

#[cfg(any(allotment_other, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod pointers {
    use super::{Stack, by_pointer};
    use allotment_engine::arch::stack::frame_pointer;

    /// A walk up the stack, by frame pointers.
    pub struct Walk {
        stack: Stack,
        frame: usize,
        pc: usize,
    }

    impl Walk {
        #[inline(always)]
        pub fn new() -> Self {
            let frame = frame_pointer();
            Self { stack: Stack::above(frame), frame, pc: 0 }
        }
        pub fn pc(&self) -> usize {
            self.pc
        }
        pub fn is_stuck(&self) -> bool {
            false
        }
        /// To the caller; false at the end.
        pub fn step(&mut self) -> bool {
            let Some((frame, pc)) = by_pointer(&mut self.stack, self.frame, self.frame) else { return false };
            (self.frame, self.pc) = (frame, pc);
            frame != 0
        }
    }
}
