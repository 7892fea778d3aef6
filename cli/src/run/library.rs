//! # The library's file
//!
//! The library is inside the command; a preload needs a path. In this order:
//!
//! 1. `ALLOTMENT_PRELOAD_SO=PATH`: that file (developers);
//! 2. a per-user cache: `$XDG_CACHE_HOME/allotment`, `~/.cache/allotment`,
//!    `/tmp/allotment-UID`, `$TMPDIR/allotment-UID`;
//! 3. a descriptor of our own (`/proc/PID/fd/N`): works while `run` stays.
//!
//! A directory is taken only if it is ours, nobody else may write to it, the
//! file system executes, and the path has no space or colon (`LD_PRELOAD`
//! splits there). A file is taken only if every byte is as embedded; its name
//! carries the content's hash, and it appears by an atomic rename, so that
//! versions live side by side and half a file is never seen.
#![allow(unsafe_code)] // geteuid, statvfs

use super::launch;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The library.
static EMBEDDED: &[u8] = include_bytes!(env!("ALLOTMENT_EMBED"));
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
    for directory in directories() {
        if let Ok(path) = keep(&directory, NAME, EMBEDDED) {
            return Ok(Library { path, held: None });
        }
    }
    let held = hold().map_err(|error| format!("no place for the library: {error}"))?;
    let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), held.as_raw_fd()));
    Ok(Library { path, held: Some(held) })
}

/// Places to try, best first.
fn directories() -> Vec<PathBuf> {
    let var = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // SAFETY: no arguments, cannot fail.
    let own = format!("allotment-{}", unsafe { libc::geteuid() });
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

/// The file `name` with this content in `directory`, made if need be.
fn keep(directory: &Path, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    make(directory)?;
    let info = fs::symlink_metadata(directory)?;
    if !info.is_dir() || !is_ours(&info) || !executes(directory) {
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
/// that does not exist (`/nonexistent`) shall not begin to.
fn make(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    if let Some(above) = directory.parent()
        && !above.exists()
    {
        builder.create(above)?;
    }
    match builder.create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Owned by this user and writable by nobody else.
fn is_ours(info: &fs::Metadata) -> bool {
    // SAFETY: no arguments, cannot fail.
    info.uid() == unsafe { libc::geteuid() } && info.mode() & 0o022 == 0
}

/// Whether `path` is ours and has exactly this content.
fn holds(path: &Path, content: &[u8]) -> bool {
    let Ok(mut file) = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
    else {
        return false;
    };
    let Ok(info) = file.metadata() else { return false };
    if !info.is_file() || !is_ours(&info) || info.len() != content.len() as u64 || info.mode() & 0o111 == 0 {
        return false;
    }
    let mut found = Vec::with_capacity(content.len() + 1);
    let same = file.read_to_end(&mut found).is_ok() && found == content;
    if same && info.modified().ok().and_then(|time| time.elapsed().ok()).is_some_and(|age| age > TOUCH) {
        let _ = file.set_modified(SystemTime::now());
    }
    same
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
        let path = keep(&directory, "liballotment-x.so", b"code").expect("made");
        assert_eq!(fs::read(&path).expect("read"), b"code");
        assert_eq!(fs::metadata(&directory).expect("there").mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o755);
        let inode = fs::metadata(&path).expect("there").ino();
        keep(&directory, "liballotment-x.so", b"code").expect("reused");
        assert_eq!(fs::metadata(&path).expect("there").ino(), inode);
        fs::write(&path, b"evil").expect("overwritten");
        keep(&directory, "liballotment-x.so", b"code").expect("mended");
        assert_eq!(fs::read(&path).expect("read"), b"code");
        assert_eq!(fs::read_dir(&directory).expect("listed").count(), 1);
    }

    #[test]
    fn a_home_that_does_not_exist_is_not_made() {
        let home = scratch("home");
        assert!(keep(&home.join(".cache/allotment"), "liballotment-x.so", b"code").is_err());
        assert!(!home.exists());
    }

    #[test]
    fn refuses_a_directory_that_others_may_write() {
        let directory = scratch("open");
        fs::create_dir_all(&directory).expect("made");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("opened");
        assert!(keep(&directory, "liballotment-x.so", b"code").is_err());
    }

    #[test]
    fn refuses_a_link_in_place_of_the_file() {
        let directory = scratch("link");
        let path = keep(&directory, "liballotment-x.so", b"code").expect("made");
        let other = directory.join("other");
        fs::rename(&path, &other).expect("moved");
        std::os::unix::fs::symlink(&other, &path).expect("linked");
        assert!(!holds(&path, b"code"));
        keep(&directory, "liballotment-x.so", b"code").expect("replaced");
        assert!(fs::symlink_metadata(&path).expect("there").is_file());
    }

    #[test]
    fn spaces_and_colons_cannot_be_carried() {
        assert!(is_plain(Path::new("/home/a/.cache")));
        assert!(!is_plain(Path::new("/home/a b")));
        assert!(!is_plain(Path::new("/home/a:b")));
    }
}
