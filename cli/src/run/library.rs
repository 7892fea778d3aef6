//! # The library's file
//!
//! The library is inside the command; a preload needs a path. In this order:
//!
//! 1. `ALLOTMENT_PRELOAD_SO=PATH`: that file (developers);
//! 2. the installed one, if it is this very library: `liballotment.so` beside the folder of the command, in `lib/ARCH-linux-gnu`,
//!    `lib64` or `lib`, root's or ours and as safe as a cache's;
//! 3. a cache. Root's: `/var/cache/allotment`, `/var/lib/allotment`, `/run/allotment`, which all can read, so that a program
//!    that drops its privileges keeps the library. Others': `$XDG_CACHE_HOME/allotment`, `~/.cache/allotment`,
//!    `/tmp/allotment-UID`, `$TMPDIR/allotment-UID`;
//! 4. a descriptor of our own (`/proc/PID/fd/N`): works while `run` stays, for this user's programs.
//!
//! A directory is taken only if it is ours, and nobody but us and root could put another one, or another file, into its place:
//! no directory above it is somebody else's or can be written by others (but for those like `/tmp`, where only the owner of
//! a name may change it). The environment may name a home that is somebody else's (`sudo -E`, `su`). The
//! file system executes, and the path has no space or colon (`LD_PRELOAD` splits there). A file is taken only if every byte is as embedded; its name
//! carries the content's hash, and it appears by an atomic rename, so that
//! versions live side by side and half a file is never seen.
#![allow(unsafe_code)] // statvfs

use super::launch;
use crate::file::euid;
use crate::proc;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The library.
pub static EMBEDDED: &[u8] = include_bytes!(env!("ALLOTMENT_EMBED"));
/// Its file's name.
const NAME: &str = concat!("liballotment-", env!("ALLOTMENT_EMBED_HASH"), ".so");
/// Other versions not used for this long go when a new one comes.
const STALE: Duration = Duration::from_secs(30 * 24 * 3600);
/// A file used is touched when its time is older than this.
const TOUCH: Duration = Duration::from_secs(24 * 3600);

/// Where the library is.
#[derive(Debug)]
pub struct Library {
    path: PathBuf,
    held: Option<File>,
}

impl Library {
    /// Its path, without space or colon.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Whether it is gone when this process is.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }
}

/// Finds or makes the library's file.
///
/// # Errors
/// One line.
pub fn locate() -> Result<Library, String> {
    if let Some(path) = std::env::var_os("ALLOTMENT_PRELOAD_SO") {
        let path =
            fs::canonicalize(&path).map_err(|error| format!("ALLOTMENT_PRELOAD_SO={}: {error}", path.display()))?;
        if !is_plain(&path) {
            return Err(format!("ALLOTMENT_PRELOAD_SO={}: LD_PRELOAD cannot carry spaces or colons", path.display()));
        }
        return Ok(Library { path, held: None });
    }
    let user = euid();
    if let Some(path) = std::env::current_exe().ok().and_then(|command| installed(&command, EMBEDDED, user)) {
        return Ok(Library { path, held: None });
    }
    for directory in directories(user) {
        if let Ok(path) = keep(&directory, NAME, EMBEDDED, user) {
            return Ok(Library { path, held: None });
        }
    }
    let held = hold().map_err(|error| format!("no place for the library: {error}"))?;
    let path = proc::descriptor(Some(std::process::id()), held.as_raw_fd());
    Ok(Library { path, held: Some(held) })
}

/// The library that is installed with the command at `command`, if it has this content.
fn installed(command: &Path, content: &[u8], user: u32) -> Option<PathBuf> {
    let prefix = command.parent()?.parent()?;
    [format!("lib/{}-linux-gnu", std::env::consts::ARCH).as_str(), "lib64", "lib"].iter().find_map(|folder| {
        let path = fs::canonicalize(prefix.join(folder).join("liballotment.so")).ok()?;
        let directory = path.parent()?;
        let is_good = |info: &fs::Metadata| {
            (info.uid() == 0 || info.uid() == user)
                && info.mode() & 0o022 == 0
                && (user != 0 || info.mode() & 0o004 != 0)
        };
        (is_plain(&path) && is_safe(directory, user) && executes(directory) && open(&path, content, is_good).is_some())
            .then_some(path)
    })
}

/// Places to try, best first.
fn directories(user: u32) -> Vec<PathBuf> {
    if user == 0 {
        return ["/var/cache/allotment", "/var/lib/allotment", "/run/allotment"].map(PathBuf::from).into();
    }
    let var = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let own = format!("allotment-{user}");
    [
        var("XDG_CACHE_HOME").map(|path| path.join("allotment")),
        var("HOME").map(|path| path.join(".cache/allotment")),
        Some(Path::new("/tmp").join(&own)),
        var("TMPDIR").map(|path| path.join(&own)),
    ]
    .into_iter()
    .flatten()
    .filter(|path| is_plain(path))
    .collect()
}

/// Whether `LD_PRELOAD` can carry it.
fn is_plain(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|&byte| matches!(byte, b' ' | b':' | b'\t' | b'\n'))
}

/// The file `name` with this content in `directory`, made if need be; `user` is who we are.
fn keep(directory: &Path, name: &str, content: &[u8], user: u32) -> io::Result<PathBuf> {
    let directory = &make(directory, user)?;
    let info = fs::symlink_metadata(directory)?;
    if !info.is_dir() || !is_ours(&info) || !executes(directory) || !is_plain(directory) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let path = directory.join(name);
    if holds(&path, content) {
        return Ok(path);
    }
    let mut temporary = OsString::from(format!(".{name}."));
    temporary.push(std::process::id().to_string());
    let temporary = directory.join(temporary);
    let written = write_new(&temporary, content).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
        written?;
    }
    prune(directory, name);
    if holds(&path, content) { Ok(path) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Makes a directory, and the one above it if need be; no further, for a home
/// that does not exist (`/nonexistent`) shall not begin to. Its name without links, if nobody else can change what that means.
fn make(directory: &Path, user: u32) -> io::Result<PathBuf> {
    let mode = if user == 0 { 0o755 } else { 0o700 };
    let above = directory.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let there = if above.exists() { above } else { above.parent().ok_or(io::ErrorKind::InvalidInput)? };
    let mut path = fs::canonicalize(there)?;
    if !is_safe(&path, user) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    for name in directory.strip_prefix(there).map_err(|_| io::ErrorKind::InvalidInput)? {
        path.push(name);
        match DirBuilder::new().mode(mode).create(&path) {
            // (Whatever the umask.)
            Ok(()) => fs::set_permissions(&path, fs::Permissions::from_mode(mode))?,
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => {}
        }
        path = fs::canonicalize(&path)?;
    }
    if is_safe(&path, user) { Ok(path) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Whether nobody but `user` and root can change what a path without links means, and (root's) all can read there.
fn is_safe(path: &Path, user: u32) -> bool {
    const STICKY: u32 = 0o1000;
    path.ancestors().all(|directory| {
        fs::symlink_metadata(directory).is_ok_and(|info| {
            let is_trusted = info.is_dir() && (info.uid() == user || info.uid() == 0);
            let is_shut = info.mode() & 0o022 == 0 || info.mode() & STICKY != 0;
            is_trusted && is_shut && (user != 0 || info.mode() & 0o001 != 0)
        })
    })
}

/// Owned by this user and writable by nobody else.
fn is_ours(info: &fs::Metadata) -> bool {
    info.uid() == euid() && info.mode() & 0o022 == 0
}

/// Whether `path` is ours and has exactly this content.
fn holds(path: &Path, content: &[u8]) -> bool {
    let Some(file) = open(path, content, |info| is_ours(info) && info.mode() & 0o111 != 0) else { return false };
    let age = file.metadata().and_then(|info| info.modified()).ok().and_then(|time| time.elapsed().ok());
    if age.is_some_and(|age| age > TOUCH) {
        let _ = file.set_modified(SystemTime::now());
    }
    true
}

/// The file at `path`, if it is one that is good and has exactly this content.
fn open(path: &Path, content: &[u8], is_good: impl Fn(&fs::Metadata) -> bool) -> Option<File> {
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    let info = file.metadata().ok()?;
    if !info.is_file() || info.len() != content.len() as u64 || !is_good(&info) {
        return None;
    }
    let mut found = Vec::with_capacity(content.len() + 1);
    (file.read_to_end(&mut found).is_ok() && found == content).then_some(file)
}

/// Writes a file that nobody sees yet.
fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(path)?;
    file.write_all(content)?;
    file.set_permissions(fs::Permissions::from_mode(0o755))
}

/// Removes versions that nobody has used for a month.
fn prune(directory: &Path, keep: &str) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let text = name.to_string_lossy();
        let ours = text.trim_start_matches('.').starts_with("liballotment-") && text != keep;
        let age = entry.metadata().and_then(|info| info.modified()).ok().and_then(|time| time.elapsed().ok());
        if ours && age.is_some_and(|age| age > STALE) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether the file system lets code be mapped.
fn executes(directory: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(directory.as_os_str().as_bytes()) else { return false };
    // SAFETY: all-zero bytes are a valid statvfs; `path` ends in NUL and lives through the call.
    unsafe {
        let mut info: libc::statvfs = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &raw mut info) == 0 && info.f_flag & libc::ST_NOEXEC == 0
    }
}

/// The library in a descriptor.
fn hold() -> io::Result<File> {
    let mut file = launch::memfd(c"liballotment.so", 0)?;
    file.write_all(EMBEDDED)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("allotment-test-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn makes_mends_and_reuses_the_file() {
        let directory = scratch("keep").join("deep");
        let keep = |directory: &Path, name: &str, content: &[u8]| keep(directory, name, content, euid());
        let path = keep(&directory, "liballotment-x.so", b"code").expect("made");
        assert_eq!(fs::read(&path).expect("read"), b"code");
        let mode = if euid() == 0 { 0o755 } else { 0o700 };
        assert_eq!(fs::metadata(&directory).expect("there").mode() & 0o777, mode);
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o755);
        let inode = fs::metadata(&path).expect("there").ino();
        keep(&directory, "liballotment-x.so", b"code").expect("reused");
        assert_eq!(fs::metadata(&path).expect("there").ino(), inode);
        fs::write(&path, b"evil").expect("overwritten");
        keep(&directory, "liballotment-x.so", b"code").expect("mended");
        assert_eq!(fs::read(&path).expect("read"), b"code");
        assert_eq!(fs::read_dir(&directory).expect("listed").count(), 1);
    }

    /// Of the same size, with the same time, one bit in the middle other than it was.
    #[test]
    fn a_damaged_block_is_mended() {
        let directory = scratch("damaged");
        let content: Vec<u8> = (0..450_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let keep = || keep(&directory, "liballotment-x.so", &content, euid()).expect("kept");
        let path = keep();
        for (at, length) in [(0, 1), (225_000, 1), (200_704, 4096), (content.len() - 1, 1)] {
            let time = fs::metadata(&path).and_then(|info| info.modified()).expect("there");
            let mut damaged = content.clone();
            damaged[at..at + length].iter_mut().for_each(|byte| *byte ^= 1);
            fs::write(&path, &damaged).expect("overwritten");
            File::open(&path).and_then(|file| file.set_modified(time)).expect("dated");
            assert_eq!(keep(), path);
            assert!(fs::read(&path).expect("read") == content, "{length} at {at}");
        }
    }

    #[test]
    fn the_installed_library_is_taken_if_it_is_this_one() {
        let prefix = scratch("installed");
        let (command, library) = (prefix.join("bin/allotment"), prefix.join("lib/liballotment.so"));
        let found = || installed(&command, b"code", euid());
        assert_eq!(found(), None);
        fs::create_dir_all(prefix.join("lib")).expect("made");
        fs::write(&library, b"code").expect("written");
        fs::set_permissions(&library, fs::Permissions::from_mode(0o644)).expect("shut");
        assert_eq!(found(), fs::canonicalize(&library).ok());
        fs::set_permissions(&library, fs::Permissions::from_mode(0o666)).expect("opened");
        assert_eq!(found(), None, "others may write");
        fs::set_permissions(&library, fs::Permissions::from_mode(0o644)).expect("shut");
        fs::set_permissions(prefix.join("lib"), fs::Permissions::from_mode(0o777)).expect("opened");
        assert_eq!(found(), None, "others may put another one there");
        fs::set_permissions(prefix.join("lib"), fs::Permissions::from_mode(0o755)).expect("shut");
        fs::write(&library, b"CODE").expect("written");
        assert_eq!(found(), None, "another version");
        fs::remove_dir_all(&prefix).expect("removed");
    }

    #[test]
    fn a_home_that_does_not_exist_is_not_made() {
        let home = scratch("home");
        assert!(keep(&home.join(".cache/allotment"), "liballotment-x.so", b"code", euid()).is_err());
        assert!(!home.exists());
    }

    #[test]
    fn refuses_a_directory_that_others_may_write() {
        let directory = scratch("open");
        fs::create_dir_all(&directory).expect("made");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("opened");
        assert!(keep(&directory, "liballotment-x.so", b"code", euid()).is_err());
    }

    /// Whoever owns or may write a directory above could put another one into its place.
    #[test]
    fn refuses_a_directory_below_somebody_elses() {
        let above = scratch("above");
        let directory = above.join("cache/allotment");
        fs::create_dir_all(above.join("cache")).expect("made");
        let kept = || keep(&directory, "liballotment-x.so", b"code", euid());
        fs::set_permissions(&above, fs::Permissions::from_mode(0o777)).expect("opened");
        assert!(kept().is_err() && !directory.exists(), "others may write above");
        fs::set_permissions(&above, fs::Permissions::from_mode(0o1777)).expect("opened");
        assert!(kept().is_ok(), "as in /tmp");
        fs::set_permissions(&above, fs::Permissions::from_mode(0o755)).expect("shut");
        assert!(kept().is_ok());
        // By a link: what it leads to counts.
        let link = scratch("above-link");
        std::os::unix::fs::symlink(&above, &link).expect("linked");
        let by_link = keep(&link.join("cache/allotment"), "liballotment-x.so", b"code", euid()).expect("followed");
        assert!(by_link.starts_with(fs::canonicalize(&above).expect("there")), "{}", by_link.display());
        fs::remove_file(&link).expect("removed");
        if euid() != 0 {
            return;
        }
        fs::set_permissions(&above, fs::Permissions::from_mode(0o700)).expect("shut");
        assert!(kept().is_err(), "a program that drops its privileges could not read there");
        fs::set_permissions(&above, fs::Permissions::from_mode(0o755)).expect("opened");
        std::os::unix::fs::chown(&above, Some(65534), None).expect("given away");
        assert!(kept().is_err(), "somebody else's");
    }

    #[test]
    fn refuses_a_link_in_place_of_the_file() {
        let directory = scratch("link");
        let path = keep(&directory, "liballotment-x.so", b"code", euid()).expect("made");
        let other = directory.join("other");
        fs::rename(&path, &other).expect("moved");
        std::os::unix::fs::symlink(&other, &path).expect("linked");
        assert!(!holds(&path, b"code"));
        keep(&directory, "liballotment-x.so", b"code", euid()).expect("replaced");
        assert!(fs::symlink_metadata(&path).expect("there").is_file());
    }

    #[test]
    fn spaces_and_colons_cannot_be_carried() {
        assert!(is_plain(Path::new("/home/a/.cache")));
        assert!(!is_plain(Path::new("/home/a b")));
        assert!(!is_plain(Path::new("/home/a:b")));
    }
}
