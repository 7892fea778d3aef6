//! # Finding what a process publishes
//!
//! ```text
//! PID ──► /proc/PID/root/dev/shm/allotment-<namespace>-<id in it>     knob `publish`
//!     └─► ALLOTMENT_SHARE=PATH:ID in /proc/PID/environ                `allotment run --stats`
//! FILE ─► that file: a copy, nobody is asked for anything
//! all  ─► each PID of /proc in both ways
//! ```
//!
//! A file is opened when it is this user's (root: the process's), regular, nobody else's to open, and the process maps it:
//! one that does not has exec'ed another program since. It is believed when it is long enough and has the magic, the version
//! and the process's id. Everything else is one line that says what to do.
//!
//! What processes leave behind at a death by signal is swept, whatever their pid namespace: files of this user (root: of all)
//! that nobody has open for writing or maps so, as their process does from the file's making to its own end. `/proc` is
//! not asked: it may hide a process that lives (`hidepid`), and shows none of other namespaces. A file with a second name
//! is left alone, and by root somebody else's that is not as processes make them: anybody may use such a name.

use crate::file::{self, Found, euid};
use crate::proc::{self, Maps, Status};
use crate::term::plain;
use allotment_engine::stat::board::{Board, MAGIC, SETS_MAX, SHARE_BYTES, SHARE_ENV, TALLIES, TALLY_BYTES, VERSION};
use allotment_engine::stat::profile::HEAP_SUFFIX;
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Where processes publish.
const DIRECTORY: &str = "/dev/shm";
/// How the names of their files begin.
const PREFIX: &str = "allotment-";

/// A board that was found and believed.
#[derive(Debug)]
pub struct Target {
    /// The process, by the id that it has here; for a copy what its board says.
    pub pid: u32,
    /// When it started: a later process of the same number is another.
    pub born: u64,
    /// Whether it is a running process's, and so can be asked.
    pub live: bool,
    /// The file.
    pub file: File,
    /// Its name.
    pub path: PathBuf,
}

impl Target {
    /// What a process publishes.
    ///
    /// # Errors
    /// One line.
    pub fn of(pid: u32) -> Result<Self, String> {
        let status = Status::of(pid).map_err(|_| format!("there is no process {pid}"))?;
        let who = format!("process {pid} ({})", proc::name(pid));
        if matches!(status.state, 'Z' | 'X') {
            return Err(format!("{who} has ended (its parent has not taken notice yet)"));
        }
        if status.ids.first().is_some_and(|&id| id != pid) {
            return Err(format!("{pid} is a thread, not a process"));
        }
        let denied = |error: io::Error| {
            if Status::of(pid).is_err() {
                return format!("{who} has ended");
            }
            match error.kind() {
                io::ErrorKind::PermissionDenied => match status.users.first() {
                    Some(&user) if user != euid() && euid() != 0 => {
                        format!("{who} belongs to somebody else (user {user}): ask as that user, or as root")
                    }
                    _ => format!(
                        "{who} may not be looked into, although it is this user's: it or the system protects it"
                    ),
                },
                _ => format!("{who} cannot be looked into: {error}"),
            }
        };
        let namespace = proc::namespace(pid).map_err(denied)?;
        let maps = Maps::of(pid).map_err(denied)?;
        if maps.is_empty() {
            return Err(format!("{who} has ended"));
        }
        let inner = status.ids.last().copied().unwrap_or(pid);
        let root = proc::root(pid);
        let published = name(namespace, inner, "");
        let (mut stale, mut taken) = (false, None);
        // A memfd has no mode of its own: only who may look into the process comes that far.
        let ways = [(Some(Found::below(&root, &published)), true), (shared(pid, inner, &root, &status.users), false)];
        for (found, private) in ways.into_iter().filter_map(|(found, private)| Some((found?, private))) {
            let found = match found {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(denied(error)),
            };
            if !maps.has(&found.info) {
                let owner = found.info.uid();
                if private && !status.users.contains(&owner) {
                    taken = Some(owner);
                } else {
                    stale = true;
                }
                continue;
            }
            if let Some(why) = foreign(&found.info, &status.users, private) {
                return Err(format!("{who}: its file {} is not believed: {why}", published.display()));
            }
            let file = found.open(true).map_err(denied)?;
            check(&file, &found.info, Some(inner)).map_err(|why| format!("{who}: {why}"))?;
            let born = proc::Usage::of(pid).map_or(0, |usage| usage.born);
            return Ok(Self { pid, born, live: true, file, path: published });
        }
        Err(match (stale, maps.has_library(), taken) {
            (true, false, _) => format!("{who} has exec'ed a program that does not run on Allotment"),
            (_, true, Some(owner)) => format!(
                "{who} runs on Allotment but publishes nothing: the name {} is taken by user {owner}",
                published.display()
            ),
            (_, true, None) => format!(
                "{who} runs on Allotment but publishes nothing: start it by `allotment run`, or with ALLOTMENT_CONF=publish=on"
            ),
            (false, false, _) => {
                format!("{who} does not run on Allotment: start it by `allotment run -- {}`", proc::name(pid))
            }
        })
    }

    /// A copy of what a process published.
    ///
    /// # Errors
    /// One line.
    pub fn copy(path: &Path) -> Result<Self, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let found = Found::at(path, true).map_err(|error| wrong(&plain(&error)))?;
        let file = found.open(false).map_err(|error| wrong(&plain(&error)))?;
        check(&file, &found.info, None).map_err(|why| wrong(&why))?;
        let mut word = [0; 4];
        file.read_exact_at(&mut word, offset_of!(Board, pid) as u64).map_err(|error| wrong(&plain(&error)))?;
        Ok(Self { pid: u32::from_ne_bytes(word), born: 0, live: false, file, path: path.to_owned() })
    }

    /// Whether the process is the one that was found, and still maps the file.
    pub fn is_alive(&self) -> bool {
        self.live
            && Status::of(self.pid).is_ok_and(|status| !matches!(status.state, 'Z' | 'X'))
            && proc::Usage::of(self.pid).is_some_and(|usage| usage.born == self.born)
            && self.file.metadata().is_ok_and(|info| Maps::of(self.pid).is_ok_and(|maps| maps.has(&info)))
    }
}

/// A file that a process publishes, by its namespace and its id there; `suffix` says what it is.
pub fn name(namespace: u64, pid: u32, suffix: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{PREFIX}{namespace}-{pid}{suffix}"))
}

/// The board that `allotment run --stats` made for a process, by its environment: a descriptor of a process that is ours, or
/// (for root) of the user's whose process it is.
fn shared(pid: u32, inner: u32, root: &Path, users: &[u32]) -> Option<io::Result<Found>> {
    let (owner, number) = shared_by_environment(pid, inner)?;
    let (found, process) = match Found::descriptor(root, owner, number) {
        Ok(found) => found,
        Err(error) => return Some(Err(error)),
    };
    let own = euid();
    (process.uid() == own || own == 0 && users.contains(&process.uid())).then_some(Ok(found))
}

/// Process and descriptor that an environment names.
fn shared_by_environment(pid: u32, inner: u32) -> Option<(u32, u32)> {
    let value = proc::variable(pid, SHARE_ENV)?;
    let (path, id) = value.to_str()?.rsplit_once(':')?;
    let id: u32 = id.parse().ok()?;
    // (What it exec'ed or forked has the same environment.) Nothing else is opened because an environment says so.
    proc::named_descriptor(path).filter(|_| id == inner)
}

/// Why a file is not believed.
pub fn foreign(info: &Metadata, users: &[u32], private: bool) -> Option<String> {
    let (own, owner) = (euid(), info.uid());
    if !info.is_file() {
        return Some("not a regular file".into());
    }
    if owner != own && !(own == 0 && users.contains(&owner)) {
        return Some(format!("it belongs to user {owner}"));
    }
    let mode = info.mode() & 0o777;
    (private && mode & 0o077 != 0).then(|| format!("others may open it (mode {mode:03o})"))
}

/// Whether a file holds a board of this version, of this process.
fn check(file: &File, info: &Metadata, pid: Option<u32>) -> Result<(), String> {
    let truncated = || Err(format!("the board is truncated: {} bytes of {SHARE_BYTES}", info.len()));
    let mut head = [0; 16];
    if info.len() < head.len() as u64 {
        return truncated();
    }
    file.read_exact_at(&mut head, 0).map_err(|error| format!("the board cannot be read: {}", plain(&error)))?;
    let [magic, words] = [0, 8].map(|at: usize| u64::from_ne_bytes(*head[at..].first_chunk().unwrap_or(&[0; 8])));
    let (version, id) = (words as u32, (words >> 32) as u32);
    const { assert!(offset_of!(Board, version) == 8 && offset_of!(Board, pid) == 12 && cfg!(target_endian = "little")) };
    if magic == 0 {
        return Err("the board is empty: its program has only begun, or never allocated".into());
    }
    if magic != MAGIC {
        return Err("not a board of Allotment".into());
    }
    if version != VERSION {
        return Err(format!(
            "the board was made by another version ({version:08x}; this command reads {VERSION:08x}): use the command that came with that library"
        ));
    }
    // (A copy is whole as far as its sets go.)
    let mut sets = [0; 4];
    let sets = match file.read_exact_at(&mut sets, offset_of!(Board, sets) as u64) {
        Ok(()) => u32::from_ne_bytes(sets) as usize,
        Err(_) => return truncated(),
    };
    let least = if pid.is_some() { SHARE_BYTES } else { TALLIES + sets.min(SETS_MAX) * TALLY_BYTES };
    match pid {
        _ if info.len() < least as u64 => truncated(),
        Some(pid) if id != pid => Err(format!("the board is of process {id}")),
        _ => Ok(()),
    }
}

/// Namespace and id of a file's name; whether it is a board's.
fn parse(name: &str) -> Option<(u64, u32, bool)> {
    let (namespace, rest) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let id = rest.strip_suffix(HEAP_SUFFIX).unwrap_or(rest);
    let is_digits = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    (is_digits(namespace) && is_digits(id))
        .then(|| Some((namespace.parse().ok()?, id.parse().ok()?, !rest.ends_with(HEAP_SUFFIX))))?
}

/// A file of the directory.
#[derive(Debug)]
struct Published {
    path: PathBuf,
    namespace: u64,
    id: u32,
    is_board: bool,
}

/// Files in the directory.
fn published(directory: &Path) -> Vec<Published> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let named = |entry: fs::DirEntry| {
        let (namespace, id, is_board) = parse(entry.file_name().to_str()?)?;
        Some(Published { path: entry.path(), namespace, id, is_board })
    };
    entries.filter_map(named).collect()
}

/// Removes what dead processes of this user (for root: of all) left. Cost: a directory, and five system calls for each file.
pub fn sweep() -> usize {
    sweep_in(Path::new(DIRECTORY))
}

fn sweep_in(directory: &Path) -> usize {
    let is_swept = |file: &Published| {
        let Ok(found) = Found::at(&file.path, false) else { return false };
        if !found.info.is_file() || found.info.nlink() != 1 || !is_its(&found.info, file) {
            return false;
        }
        let Ok(opened) = found.open(false) else { return false };
        if !is_dead(&opened, file) || !file.is_board && !is_condemned(&opened, &found.info) {
            return false;
        }
        // (The process may have begun another since.)
        let is_same = fs::symlink_metadata(&file.path).is_ok_and(|now| now.ino() == found.info.ino());
        is_same && fs::remove_file(&file.path).is_ok()
    };
    published(directory).iter().filter(|file| is_swept(file)).count()
}

/// Whether this user may take a file for what a process left: it is the user's own, or (for root) as that process would have made it.
fn is_its(info: &Metadata, file: &Published) -> bool {
    let (own, owner) = (euid(), info.uid());
    if owner == own || own != 0 {
        return owner == own;
    }
    let is_here = proc::namespace(std::process::id()).is_ok_and(|own| own == file.namespace);
    let living = is_here.then(|| Status::of(file.id).ok()).flatten();
    info.mode() & 0o077 == 0 && living.is_none_or(|process| process.users.contains(&owner))
}

/// Whether the process of a file is gone.
fn is_dead(opened: &File, file: &Published) -> bool {
    file::is_written(opened).map_or_else(
        // Where there are no leases: whether there is such a process, which nothing hides.
        || proc::namespace(std::process::id()).is_ok_and(|own| own == file.namespace) && !proc::is_process(file.id),
        |is_written| !is_written,
    )
}

/// A dead process's profile may be about to be read by the `allotment run` that has just waited for it: the first sweep
/// that finds it takes the permission to write away, and one a minute later takes the file.
fn is_condemned(file: &File, info: &Metadata) -> bool {
    if info.mode() & 0o200 == 0 {
        return !is_younger(info, Duration::from_secs(60));
    }
    let _ = file.set_permissions(Permissions::from_mode(0o400));
    let _ = file.set_modified(SystemTime::now());
    false
}

/// Changed so lately.
fn is_younger(info: &Metadata, than: Duration) -> bool {
    let age = info.modified().ok().and_then(|time| time.elapsed().ok());
    age.is_none_or(|age| age < than)
}

/// Every process that publishes, by whatever way, and may be looked into; in the order of their numbers.
/// (One after the other: there may be more of them than a process may have files open.)
pub fn all() -> impl Iterator<Item = Target> {
    proc::processes().into_iter().filter_map(|pid| Target::of(pid).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::snapshot::tests::Fabric;
    use std::process::Command;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("allotment-find-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("made");
        path
    }

    #[test]
    fn names_are_read_strictly() {
        assert_eq!(parse("allotment-4026531836-17"), Some((4_026_531_836, 17, true)));
        assert_eq!(parse("allotment-4026531836-17.heap"), Some((4_026_531_836, 17, false)));
        for name in ["allotment-1", "allotment-a-1", "allotment-1-", "allotment-1-+2", "allotment-1-2.txt", "x-1-2"] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn copies_are_checked() {
        let directory = scratch("copies");
        let path = directory.join("board");
        let tell = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("written");
            Target::copy(&path).map(|target| target.pid)
        };
        let mut fabric = Fabric::new();
        fabric.short(offset_of!(Board, pid), 77);
        assert_eq!(tell(&fabric.0), Ok(77));
        fabric.short(offset_of!(Board, sets), 3);
        let whole = TALLIES + 3 * TALLY_BYTES;
        assert!(tell(&fabric.0[..whole]).is_ok());
        assert!(tell(&fabric.0[..whole - 1]).is_err_and(|line| line.contains("truncated")));
        assert!(tell(b"").is_err_and(|line| line.contains("truncated")));
        fabric.short(offset_of!(Board, version), !VERSION);
        assert!(tell(&fabric.0).is_err_and(|line| line.contains("made by another version") && !line.contains('\n')));
        fabric.long(0, 0);
        assert!(tell(&fabric.0).is_err_and(|line| line.contains("empty")));
        fabric.long(0, u64::MAX);
        assert!(tell(&fabric.0).is_err_and(|line| line.contains("not a board")));
        assert!(Target::copy(&directory).is_err_and(|line| line.contains("regular")));
        assert!(Target::copy(&directory.join("none")).is_err_and(|line| line.contains("No such file")));
        fs::remove_dir_all(&directory).expect("removed");
    }

    /// Whoever has a file open for writing lives, wherever it is; whoever has not is dead, whatever its number says.
    #[test]
    fn what_the_dead_leave_is_swept_and_nothing_else() {
        let directory = scratch("sweep");
        let own = proc::namespace(std::process::id()).expect("readable");
        let mut child = Command::new("true").spawn().expect("started");
        let dead = child.id();
        child.wait().expect("ended");
        let living = std::process::id();
        let swept = [
            format!("allotment-{own}-{dead}"),
            format!("allotment-{}-{dead}", own + 1),
            format!("allotment-{own}-{living}"),
        ];
        let profile = directory.join(format!("allotment-{own}-{dead}.heap"));
        fs::write(&profile, b"samples").expect("written");
        let written = format!("allotment-{}-{living}", own + 2);
        let writer = File::create(directory.join(&written)).expect("made");
        if file::is_written(&File::open(&profile).expect("there")).is_none() {
            eprintln!("skipped: this file system has no leases");
            return;
        }
        let kept = [format!("allotment-{own}-{dead}.txt"), written];
        for name in swept.iter().chain(&kept[..1]) {
            fs::write(directory.join(name), b"").expect("written");
        }
        let link = directory.join(format!("allotment-{own}-1"));
        std::os::unix::fs::symlink(directory.join(&kept[0]), &link).expect("linked");
        assert_eq!(sweep_in(&directory), 3);
        assert!(swept.iter().all(|name| !directory.join(name).exists()));
        assert!(kept.iter().all(|name| directory.join(name).exists()) && link.exists());
        drop(writer);
        assert_eq!(sweep_in(&directory), 1);
        // A profile may still be read for a minute after the first sweep that finds its process dead.
        let old = SystemTime::now() - Duration::from_secs(70);
        assert_eq!(fs::read(&profile).expect("kept"), b"samples");
        assert_eq!(fs::metadata(&profile).expect("kept").mode() & 0o777, 0o400);
        File::open(&profile).and_then(|file| file.set_modified(old)).expect("dated");
        assert_eq!(sweep_in(&directory), 1);
        assert!(!profile.exists());
        fs::remove_dir_all(&directory).expect("removed");
    }

    /// Anybody may make such names: a second one for another file, or one of somebody else's process.
    #[test]
    fn what_no_process_can_have_left_is_not_touched() {
        let directory = scratch("strangers");
        let own = proc::namespace(std::process::id()).expect("readable");
        let mut child = Command::new("true").spawn().expect("started");
        let dead = child.id();
        child.wait().expect("ended");
        let living = std::process::id();
        let make = |name: &str, mode: u32| {
            let path = directory.join(name);
            fs::write(&path, b"theirs").expect("written");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
            path
        };
        let is_kept = |path: &Path, mode: u32| fs::metadata(path).is_ok_and(|info| info.mode() & 0o777 == mode);
        let other = make("other", 0o640);
        for suffix in ["", HEAP_SUFFIX] {
            fs::hard_link(&other, directory.join(format!("allotment-{own}-{dead}{suffix}"))).expect("linked");
        }
        assert_eq!((sweep_in(&directory), is_kept(&other, 0o640)), (0, true));
        if euid() == 0 {
            let given = |name: String, mode: u32| {
                let path = make(&name, mode);
                std::os::unix::fs::chown(&path, Some(65_534), None).expect("given away");
                path
            };
            // This process is root's; nobody's would have made a private file.
            let kept = ["", HEAP_SUFFIX].map(|suffix| given(format!("allotment-{own}-{living}{suffix}"), 0o600));
            let open = given(format!("allotment-{}-{dead}{HEAP_SUFFIX}", own + 1), 0o644);
            let swept = given(format!("allotment-{}-{dead}", own + 1), 0o600);
            assert_eq!(sweep_in(&directory), 1);
            assert!(kept.iter().all(|path| is_kept(path, 0o600)) && is_kept(&open, 0o644) && !swept.exists());
        }
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn processes_that_publish_nothing_are_told_apart() {
        assert!(Target::of(4_000_000_000).is_err_and(|line| line.contains("no process")));
        let line = Target::of(std::process::id()).expect_err("publishes nothing");
        assert!(line.contains("allotment run") && !line.contains('\n'), "{line}");
    }
}
