//! # What `/proc` says of this process
//!
//! For those who have no call for it, or may not make it. What cannot be read is as if it said nothing. Locks: none.
//! Cost: three calls a file; one where only the directory is looked at.

use super::super::number::decimal;
use super::call::Errno;
use super::cpu::cpus_allowed;
use super::file::{AT_FDCWD, lines, link, slurp, statx};

/// What the kernel says of this process to a thread that opens no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// Its threads, one that was first and has ended included as long as there are others.
    pub count: u32,
    /// User and group that its first thread acts as.
    pub owner: [u32; 2],
}

/// The threads of this process; `None` where no `/proc` shows it.
#[must_use]
pub fn tasks() -> Option<Tasks> {
    let status = statx(AT_FDCWD, c"/proc/self/task", 0).ok()?;
    // (The directory and its own entry are links, too.)
    Some(Tasks { count: status[4].saturating_sub(2), owner: [status[5], status[6]] })
}

/// Whether this process's first thread lives: a dead one has no program.
#[must_use]
pub fn leader_lives() -> bool {
    const ENOENT: Errno = Errno(2);
    link(c"/proc/self/exe", &mut [0; 1]) != Err(ENOENT)
}

/// The status with which this process's first thread, which is dead, has ended (0 if that cannot be known).
#[must_use]
pub fn leader_status() -> i32 {
    let mut text = [0; 1024];
    let line = slurp(c"/proc/self/stat", &mut text).unwrap_or(b"");
    // The last field, as `wait` has it.
    let last = line.trim_ascii_end().rsplit(|&byte| byte == b' ').next().unwrap_or(b"");
    (decimal(last).unwrap_or(0) >> 8 & 0xff) as i32
}

/// Ends the calling thread if this process's first thread is dead, with the status of that one; before that it runs `leave`. (Without
/// `/proc` nothing is known.)
pub fn end_with_leader(leave: impl FnOnce()) {
    if tasks().is_some() && !leader_lives() {
        leave();
        super::process::exit(false, leader_status());
    }
}

/// What the status of this process says: the calls that the loader made to map this library, so that no filter that let it start
/// forbids them. `LONGEST` is the longest line that is wanted.
fn status<const LONGEST: usize>(each: impl FnMut(&[u8])) {
    lines(c"/proc/self/status", &mut [0; LONGEST], each);
}

fn names_filter(line: &[u8]) -> bool {
    line.strip_prefix(b"Seccomp:").is_some_and(|mode| mode.trim_ascii() != b"0")
}

/// Whether system calls of this process are filtered. Without `/proc` no filter is known. (Asked deep in a purge: little stack.)
#[must_use]
pub fn is_filtered() -> bool {
    let mut filtered = false;
    status::<128>(|line| filtered |= names_filter(line));
    filtered
}

/// How many CPUs this process may run on, asked for as far as no filter that was inherited may kill for it.
#[must_use]
pub fn cpus_told() -> u32 {
    let (mut filtered, mut cpus) = (false, None);
    status::<512>(|line| {
        filtered |= names_filter(line);
        if let Some(mask) = line.strip_prefix(b"Cpus_allowed:") {
            let digits = mask.iter().filter_map(|&digit| char::from(digit).to_digit(16));
            cpus = Some(digits.map(u32::count_ones).sum());
        }
    });
    if filtered { cpus.unwrap_or(1).max(1) } else { cpus_allowed() }
}

#[cfg(test)]
mod tests {
    use super::super::process::prctl;
    use super::*;

    #[test]
    #[allow(unsafe_code, reason = "a question to the kernel")]
    fn the_status_tells_what_the_calls_tell() {
        // SAFETY: a question.
        let mode = unsafe { prctl(21, [0; 4]) };
        assert!(mode != Ok(0) || !is_filtered());
        let text = crate::arch::tests::of_this_process("status");
        assert_eq!(is_filtered(), text.contains("\nSeccomp:") && !text.contains("\nSeccomp:\t0\n"));
        if !is_filtered() || text.contains("\nCpus_allowed:") {
            assert_eq!(cpus_told(), cpus_allowed());
        }
    }
}
