//! # Asking a process for something
//!
//! ```text
//! lock the file ─► a request that nobody answered? wait for it ─► order, arguments ─► asked + 1 ─► ring
//!                                                                  answered = asked ◄─ wait
//! ```
//!
//! A commander that dies in between has asked or has not; the next one waits for the answer or replaces the request. The
//! lock goes with the descriptor.
//!
//! Units: `Duration`s are limits of waiting, not of what is asked for: that goes on.

use super::find::Target;
use super::sys::{self, Mapping};
use crate::proc::{self, Status};
use allotment_engine::stat::board::{Reply, Request};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// The name of a keeper's thread.
const KEEPER: &str = "allotment";
/// How long another commander may take.
const LOCK: Duration = Duration::from_secs(10);
/// How long an answer may take that needs no memory to be given back.
pub const SOON: Duration = Duration::from_secs(5);
/// The same where gigabytes may be.
pub const LONG: Duration = Duration::from_secs(120);
/// How long a process without a keeper is given to start one.
const START: Duration = Duration::from_millis(700);

/// Why there was no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The process is gone.
    Ended,
    /// One line.
    Why(String),
}

impl Silence {
    /// As a line about a process.
    pub fn line(&self, pid: u32) -> String {
        match self {
            Self::Ended => format!("process {pid} has ended"),
            Self::Why(line) => line.clone(),
        }
    }
}

/// Asks for one thing and waits for its answer.
///
/// # Errors
/// [`Silence`].
pub fn ask(
    target: &Target,
    order: Request,
    arguments: [u64; 2],
    patience: Duration,
) -> Result<(Reply, [u64; 8]), Silence> {
    if !target.live {
        return Err(Silence::Why("a copy of a board answers nothing".into()));
    }
    let mapping = Mapping::of(&target.file)
        .map_err(|error| Silence::Why(format!("{}: {}", target.path.display(), crate::term::plain(&error))))?;
    lock(target)?;
    let answer = converse(target, &mapping, order, arguments, patience);
    sys::unlock(&target.file);
    answer
}

/// Waits for the lock on the file.
fn lock(target: &Target) -> Result<(), Silence> {
    let begin = Instant::now();
    while !sys::try_lock(&target.file) {
        if begin.elapsed() > LOCK {
            return Err(Silence::Why(format!(
                "another command has been asking process {} for more than {} s",
                target.pid,
                LOCK.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// With the lock held.
fn converse(
    target: &Target,
    mapping: &Mapping,
    order: Request,
    arguments: [u64; 2],
    patience: Duration,
) -> Result<(Reply, [u64; 8]), Silence> {
    let mailbox = mapping.mailbox();
    let ring = || {
        // Release: whoever sees the bell sees the request.
        mailbox.bell.fetch_add(1, Release);
        sys::wake(&mailbox.bell);
    };
    // Relaxed: only who holds the lock raises it.
    let before = mailbox.asked.load(Relaxed);
    // Acquire: what was done for the last request has been done.
    if mailbox.answered.load(Acquire) != before {
        // A commander has died. Its order must not be read together with our arguments.
        ring();
        let _ = answered(target, mapping, before, patience);
    }
    mailbox.order.store(Request::None as u32, Release);
    mailbox.arguments.iter().zip(arguments).for_each(|(word, argument)| word.store(argument, Relaxed));
    // Release: order after arguments, number after both.
    mailbox.order.store(order as u32, Release);
    let number = before.wrapping_add(1);
    mailbox.asked.store(number, Release);
    ring();
    answered(target, mapping, number, patience)?;
    let results = std::array::from_fn(|at| mailbox.results[at].load(Relaxed));
    Ok((Reply::from_word(mailbox.status.load(Relaxed)), results))
}

/// Waits for an answer.
fn answered(target: &Target, mapping: &Mapping, number: u32, patience: Duration) -> Result<(), Silence> {
    const LOOK: Duration = Duration::from_millis(100);
    let word = &mapping.mailbox().answered;
    let begin = Instant::now();
    loop {
        // Acquire: the results were written before.
        let last = word.load(Acquire);
        if mapping.is_cut() {
            return Err(Silence::Why(format!("the board of process {} was cut short", target.pid)));
        }
        if last == number {
            return Ok(());
        }
        let waited = begin.elapsed();
        if waited >= LOOK {
            if !target.is_alive() {
                return Err(Silence::Ended);
            }
            if sys::is_stopped() {
                return Err(Silence::Why("interrupted".into()));
            }
            // A process that cannot answer is not waited for to the end.
            let excuse = excuse(target.pid);
            let limit = if excuse.is_some() { patience.min(START) } else { patience };
            if waited >= limit {
                let line = excuse.unwrap_or_else(|| format!("has not answered for {} s", patience.as_secs()));
                return Err(Silence::Why(format!("process {} {line}", target.pid)));
            }
        }
        sys::wait(word, last, LOOK);
    }
}

/// Why a process cannot answer, as far as can be seen.
fn excuse(pid: u32) -> Option<String> {
    let status = Status::of(pid).ok()?;
    if matches!(status.state, 'T' | 't') {
        return Some("is stopped: the request stays until it continues".into());
    }
    if proc::has_thread(pid, KEEPER) {
        return None;
    }
    Some(if status.seccomp == Some(2) {
        "filters its system calls, so it has no keeper that could answer".into()
    } else {
        "has no keeper yet: it starts when the program next allocates beyond its caches; the request stays".into()
    })
}

/// An answer that is not `Done`, as one line.
pub fn refusal(pid: u32, answer: Reply) -> Option<String> {
    let why = match answer {
        Reply::Done => return None,
        Reply::Unknown => "does not know this request: it is of another version",
        Reply::Range => "refused: an argument is out of range",
        Reply::Fixed => "refused: this knob is read at the start only",
        Reply::NoRoom => "has no room for it in its file: /dev/shm is full",
        Reply::Confined => "filters its system calls and may not send fences: nothing was done",
    };
    Some(format!("process {pid} {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::snapshot::tests::Fabric;
    use std::fs::File;
    use std::path::{Path, PathBuf};

    /// A board in a file; its process is ourselves.
    fn board(name: &str) -> PathBuf {
        let path = PathBuf::from(format!("/dev/shm/test-ask-{}-{name}", std::process::id()));
        std::fs::write(&path, Fabric::new().0).expect("written");
        path
    }

    fn target(path: &Path) -> Target {
        let file = File::options().read(true).write(true).open(path).expect("opened");
        let pid = std::process::id();
        let born = proc::Usage::of(pid).expect("readable").born;
        Target { pid, born, live: true, file, path: path.to_owned() }
    }

    /// Answers `count` requests as a keeper would.
    fn serve(path: &Path, count: usize) -> std::thread::JoinHandle<Vec<(u32, u64)>> {
        let file = File::options().read(true).write(true).open(path).expect("opened");
        std::thread::spawn(move || {
            let mapping = Mapping::of(&file).expect("mapped");
            let mailbox = mapping.mailbox();
            let mut served = Vec::new();
            while served.len() < count {
                let (asked, bell) = (mailbox.asked.load(Acquire), mailbox.bell.load(Acquire));
                if asked == mailbox.answered.load(Relaxed) {
                    sys::wait(&mailbox.bell, bell, Duration::from_millis(50));
                    continue;
                }
                served.push((mailbox.order.load(Relaxed), mailbox.arguments[0].load(Relaxed)));
                mailbox.results[0].store(mailbox.arguments[0].load(Relaxed) * 2, Relaxed);
                mailbox.status.store(Reply::Done as u32, Relaxed);
                mailbox.answered.store(asked, Release);
                sys::wake(&mailbox.answered);
            }
            served
        })
    }

    #[test]
    fn a_request_is_answered() {
        let path = board("one");
        let server = serve(&path, 1);
        let (answer, results) = ask(&target(&path), Request::Tune, [21, 0], SOON).expect("answered");
        assert_eq!((answer, results[0]), (Reply::Done, 42));
        assert_eq!(server.join().expect("served"), [(Request::Tune as u32, 21)]);
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn a_board_that_is_cut_is_a_line() {
        let path = board("cut");
        let target = target(&path);
        let file = target.file.try_clone().expect("cloned");
        let cutter = std::thread::spawn(move || {
            // When the request is there.
            let mapping = Mapping::of(&file).expect("mapped");
            while mapping.mailbox().asked.load(Acquire) == 0 {
                std::thread::yield_now();
            }
            file.set_len(0).expect("cut");
        });
        let why = ask(&target, Request::Show, [0; 2], SOON).expect_err("cut").line(target.pid);
        assert!(why.contains("cut short"), "{why}");
        cutter.join().expect("cut");
        let why = ask(&target, Request::Show, [0; 2], SOON).expect_err("cut").line(target.pid);
        assert!(why.contains("cut short"), "{why}");
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn commanders_take_turns() {
        let path = board("turns");
        let server = serve(&path, 40);
        std::thread::scope(|scope| {
            for commander in 0..4_u64 {
                let path = &path;
                scope.spawn(move || {
                    let target = target(path);
                    for at in 0..10 {
                        let given = commander * 100 + at;
                        let (_, results) = ask(&target, Request::Purge, [given, 0], SOON).expect("answered");
                        assert_eq!(results[0], given * 2);
                    }
                });
            }
        });
        assert_eq!(server.join().expect("served").len(), 40);
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn what_a_dead_commander_left_is_answered_first() {
        let path = board("dead");
        let target = target(&path);
        let mapping = Mapping::of(&target.file).expect("mapped");
        mapping.mailbox().order.store(Request::Drain as u32, Relaxed);
        mapping.mailbox().arguments[0].store(7, Relaxed);
        mapping.mailbox().asked.store(1, Release);
        let server = serve(&path, 2);
        let (_, results) = ask(&target, Request::Purge, [5, 0], SOON).expect("answered");
        assert_eq!(results[0], 10);
        assert_eq!(server.join().expect("served"), [(Request::Drain as u32, 7), (Request::Purge as u32, 5)]);
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn silence_is_explained() {
        let path = board("silence");
        let mut target = target(&path);
        let why = ask(&target, Request::Show, [0; 2], SOON).expect_err("nobody serves").line(target.pid);
        // (Other tests may have started a keeper of this process's own heap, which does not know this board.)
        let is_known = ["has no keeper", "has not answered"].iter().any(|word| why.contains(word));
        assert!(is_known && !why.contains('\n'), "{why}");
        target.live = false;
        assert!(ask(&target, Request::Show, [0; 2], SOON).expect_err("a copy").line(1).contains("copy"));
        target.live = true;
        target.born += 1;
        assert_eq!(ask(&target, Request::Show, [0; 2], SOON), Err(Silence::Ended));
        std::fs::remove_file(path).expect("removed");
    }
}
