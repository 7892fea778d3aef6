//! # Files that others may have made
//!
//! ```text
//! name ──O_PATH──► [`Found`]: what there is, not opened ──looked at──► opened by what was found
//! ```
//! A file is found first, which waits for nobody and disturbs nothing (a fifo, a device); then looked at; then opened, so that
//! nothing can come into its place in between. Only regular files are opened, never those of `/proc` and its like. What a process
//! names is looked up below its own root, where its links lead no further.
#![allow(unsafe_code)] // openat2, fstatfs, fcntl, geteuid

use crate::proc;
use crate::term::{plain, print};
use std::ffi::CString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The user that files must belong to.
pub fn euid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// Said of a file that cannot be written.
pub fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {}", path.display(), plain(error))
}

/// Whether two names are those of one file, as far as they are written alike.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    whole(one) == whole(other)
}

/// Writes a file that appears when it is whole, or standard output for no file and `-`. What was there stays until then.
/// In place is written what is no file (a device, a pipe, a link, which may lead to an open one), and where the folder takes no other.
///
/// # Errors
/// One line.
pub fn write(path: Option<&Path>, content: &[u8]) -> Result<(), String> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else { return print(content) };
    let in_place = || File::create(path).and_then(|mut file| file.write_all(content));
    let before = fs::symlink_metadata(path).ok();
    let done = match &before {
        Some(info) if !info.is_file() => in_place(),
        _ => match beside(path, before.as_ref(), content) {
            Err(error) if before.is_some() && error.kind() == io::ErrorKind::PermissionDenied => in_place(),
            done => done,
        },
    };
    done.map_err(|error| unwritten(path, &error))
}

/// Writes another file in the same folder, with the rights that `before` has, and gives it the name.
fn beside(path: &Path, before: Option<&Metadata>, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // (Collectors look at `*.prom` only.)
    let unfinished = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&unfinished)?;
    let done = before
        .map_or(Ok(()), |info| file.set_permissions(info.permissions()))
        .and_then(|()| file.write_all(content))
        .and_then(|()| fs::rename(&unfinished, path));
    if done.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    done
}

/// The name of a file for what comes later, or never: a wrong one is known at once, and what is there stays until it is created
/// anew. What was made and got nothing is removed.
#[derive(Debug)]
pub struct Reserved {
    file: File,
    path: PathBuf,
    is_new: bool,
}

impl Reserved {
    /// Makes the file, if there is none.
    ///
    /// # Errors
    /// One line.
    pub fn at(path: &Path) -> Result<Self, String> {
        let open = |is_new| OpenOptions::new().write(true).create(true).truncate(false).create_new(is_new).open(path);
        let (file, is_new) = match open(true) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (open(false), false),
            made => (made, true),
        };
        Ok(Self { file: file.map_err(|error| unwritten(path, &error))?, path: path.to_owned(), is_new })
    }
    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let is_same = |own: Metadata, now: Metadata| own.ino() == now.ino() && own.dev() == now.dev() && now.len() == 0;
        let both = self.file.metadata().and_then(|own| fs::symlink_metadata(&self.path).map(|now| is_same(own, now)));
        if self.is_new && both.unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file that was found and not opened.
#[derive(Debug)]
pub struct Found {
    handle: File,
    /// What it is.
    pub info: Metadata,
}

/// File systems whose files are the kernel's answers.
const ANSWERS: [i64; 6] = [0x9fa0, 0x6265_6572, 0x6462_6720, 0x7472_6163, 0x0027_e0eb, 0x6367_7270];

impl Found {
    fn of(handle: File) -> io::Result<Self> {
        let info = handle.metadata()?;
        Ok(Self { handle, info })
    }

    /// By its name; a link at its end is followed if `follow`, and is found itself otherwise.
    ///
    /// # Errors
    /// As `open`.
    pub fn at(path: &Path, follow: bool) -> io::Result<Self> {
        let link = if follow { 0 } else { libc::O_NOFOLLOW };
        // (Neither reading nor writing: O_PATH.)
        OpenOptions::new().read(true).custom_flags(libc::O_PATH | link).open(path).and_then(Self::of)
    }

    /// By its name below a directory that is somebody's root; links lead no further, the last one nowhere.
    ///
    /// # Errors
    /// As `openat2`.
    pub fn below(root: &Path, path: &Path) -> io::Result<Self> {
        let inner = path.strip_prefix("/").unwrap_or(path);
        let name = CString::new(inner.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let root_handle = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(root)?;
        // SAFETY: all-zero bytes are a valid open_how; the call reads it and the name, and what it returns is new and ours.
        let opened = unsafe {
            let mut how: libc::open_how = std::mem::zeroed();
            how.flags = (libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) as u64;
            how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
            let size = size_of::<libc::open_how>();
            libc::syscall(libc::SYS_openat2, root_handle.as_raw_fd(), name.as_ptr(), &raw const how, size)
        };
        match i32::try_from(opened) {
            // SAFETY: as above.
            Ok(descriptor) if descriptor >= 0 => Self::of(unsafe { File::from_raw_fd(descriptor) }),
            _ => match io::Error::last_os_error() {
                // Before Linux 5.6, or under a filter: what is found is looked at all the same.
                error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    Self::at(&root.join(inner), false)
                }
                error => Err(error),
            },
        }
    }

    /// What a descriptor of a process is, by the process's directory in `/proc`: that of `owner`, as `root` has it.
    ///
    /// # Errors
    /// As `open`; `InvalidData` where `/proc` is something else.
    pub fn descriptor(root: &Path, owner: u32, number: u32) -> io::Result<(Self, Metadata)> {
        let process = Self::below(root, &proc::descriptors(owner))?;
        if process.kind()? != ANSWERS[0] {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let found = Self::at(&process.name().join(number.to_string()), true)?;
        Ok((found, process.info))
    }

    /// A name of it that nobody else can change.
    fn name(&self) -> PathBuf {
        proc::descriptor(None, self.handle.as_raw_fd())
    }

    /// The kind of its file system.
    fn kind(&self) -> io::Result<i64> {
        // SAFETY: all-zero bytes are a valid statfs, which the call fills.
        unsafe {
            let mut info: libc::statfs = std::mem::zeroed();
            if libc::fstatfs(self.handle.as_raw_fd(), &raw mut info) == 0 {
                Ok(info.f_type)
            } else {
                Err(io::Error::last_os_error())
            }
        }
    }

    /// Opens it.
    ///
    /// # Errors
    /// As `open`; "not a regular file".
    pub fn open(&self, write: bool) -> io::Result<File> {
        if !self.info.is_file() || self.kind().is_ok_and(|kind| ANSWERS.contains(&kind)) {
            return Err(io::Error::other("not a regular file"));
        }
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        OpenOptions::new().read(true).write(write).custom_flags(flags).open(self.name())
    }

    /// All of it, if it is at most so long.
    ///
    /// # Errors
    /// As reading; "too long".
    pub fn read(&self, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if self.info.len() <= most {
            self.open(false)?.take(most + 1).read_to_end(&mut bytes)?;
        }
        if self.info.len() > most || bytes.len() as u64 > most { Err(io::Error::other("too long")) } else { Ok(bytes) }
    }
}

/// Whether a file is open for writing anywhere, or mapped so: by any process, whether it can be seen from here or not.
/// `None` where the system does not say. (A lease for reading is refused while there is a writer; a mapping is one, however its
/// descriptor was closed.) Only for a file of this user, or for root.
pub fn is_written(file: &File) -> Option<bool> {
    const F_SETSIG: libc::c_int = 10;
    let descriptor = file.as_raw_fd();
    // SAFETY: numbers. Whoever opens the file for writing meanwhile is told by a signal that does nothing by default, and
    // waits no longer than until the next line.
    unsafe {
        libc::fcntl(descriptor, F_SETSIG, libc::SIGURG);
        if libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_RDLCK) == 0 {
            libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_UNLCK);
            return Some(false);
        }
        (io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)).then_some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("allotment-file-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("made");
        path
    }

    #[test]
    fn only_regular_files_are_opened_and_nobody_is_waited_for() {
        let directory = scratch("kinds");
        let fifo = CString::new(directory.join("fifo").as_os_str().as_bytes()).expect("no NUL");
        // SAFETY: a name that ends in NUL.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        for path in [directory.join("fifo"), directory.clone(), "/dev/null".into(), "/proc/self/status".into()] {
            let found = Found::at(&path, true).expect("found");
            assert!(found.open(false).is_err_and(|error| error.to_string().contains("regular")), "{}", path.display());
            assert!(found.read(100).is_err());
        }
        fs::write(directory.join("file"), b"content").expect("written");
        std::os::unix::fs::symlink(directory.join("file"), directory.join("link")).expect("linked");
        assert_eq!(Found::at(&directory.join("link"), true).expect("found").read(7).expect("read"), b"content");
        assert!(Found::at(&directory.join("link"), false).expect("found").read(7).is_err());
        assert!(Found::at(&directory.join("file"), false).expect("found").read(6).is_err(), "too long");
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn a_file_is_replaced_whole_or_stays() {
        let directory = scratch("replaced");
        let path = directory.join("a.prom");
        for text in ["one\n", "two\n"] {
            write(Some(&path), text.as_bytes()).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("there"), text);
        }
        let number = |path: &Path| fs::metadata(path).expect("there").ino();
        let (first, rights) = (number(&path), fs::Permissions::from_mode(0o600));
        fs::set_permissions(&path, rights.clone()).expect("set");
        write(Some(&path), b"three").expect("written");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, rights.mode());
        // A link stays one, and what it leads to the same: somebody may have it open.
        let second = number(&path);
        assert_ne!(second, first);
        std::os::unix::fs::symlink("a.prom", directory.join("link")).expect("linked");
        write(Some(&directory.join("link")), b"four").expect("written");
        let open = File::open(&path).expect("there");
        assert_eq!((fs::read(&path).expect("there"), number(&path)), (b"four".to_vec(), second));
        write(Some(&PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))), b"five").expect("written");
        assert_eq!((fs::read(&path).expect("there"), number(&path)), (b"five".to_vec(), second));
        assert!(directory.join("link").is_symlink() && fs::read_dir(&directory).expect("there").count() == 2);
        let line = write(Some(&directory.join("none/a.prom")), b"x").expect_err("no directory");
        assert!(line.contains("No such file") && !line.contains('\n'), "{line}");
        assert!(write(Some(Path::new("/dev/full")), b"x").expect_err("full").contains("No space left"));
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn what_is_reserved_stays_until_it_is_written() {
        let directory = scratch("reserved");
        let path = directory.join("file");
        drop(Reserved::at(&path).expect("made"));
        assert!(!path.exists());
        let new = Reserved::at(&path).expect("made");
        write(Some(new.path()), b"text").expect("written");
        drop(new);
        drop(Reserved::at(&path).expect("there"));
        assert_eq!(fs::read(&path).expect("kept"), b"text");
        // Whoever took the name meanwhile keeps it.
        fs::remove_file(&path).expect("removed");
        let new = Reserved::at(&path).expect("made");
        fs::rename(&path, directory.join("moved")).expect("moved");
        fs::write(&path, b"").expect("written");
        drop(new);
        assert!(path.exists());
        drop(Reserved::at(Path::new("/dev/null")).expect("there"));
        assert!(Path::new("/dev/null").exists());
        let line = Reserved::at(&directory.join("none/file")).expect_err("no directory");
        assert!(line.contains("cannot write") && line.contains("No such file"), "{line}");
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn links_lead_nowhere_out_of_a_root() {
        let root = scratch("root");
        fs::create_dir(root.join("inner")).expect("made");
        fs::write(root.join("inner/file"), b"inner").expect("written");
        std::os::unix::fs::symlink("/inner", root.join("absolute")).expect("linked");
        std::os::unix::fs::symlink("../../../../../../inner", root.join("up")).expect("linked");
        std::os::unix::fs::symlink("inner/file", root.join("last")).expect("linked");
        for name in ["/inner/file", "/absolute/file", "/up/file"] {
            let found = Found::below(&root, Path::new(name)).expect(name);
            assert_eq!(found.read(5).expect(name), b"inner");
        }
        assert!(Found::below(&root, Path::new("/last")).is_ok_and(|found| found.open(false).is_err()));
        assert!(Found::below(&root, Path::new("/etc/passwd")).is_err());
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn writers_are_seen_by_their_mappings_alone() {
        let directory = scratch("writers");
        let path = directory.join("file");
        fs::write(&path, [0; 4096]).expect("written");
        let reader = File::open(&path).expect("opened");
        let Some(false) = is_written(&reader) else {
            eprintln!("skipped: this file system has no leases");
            return;
        };
        let writer = File::options().read(true).write(true).open(&path).expect("opened");
        assert_eq!(is_written(&reader), Some(true));
        // SAFETY: a new mapping, given back below.
        let mapping = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), 4096, access, libc::MAP_SHARED, writer.as_raw_fd(), 0)
        };
        drop(writer);
        assert_eq!(is_written(&reader), Some(true));
        // SAFETY: nobody uses it.
        unsafe { libc::munmap(mapping, 4096) };
        assert_eq!(is_written(&reader), Some(false));
        fs::remove_dir_all(&directory).expect("removed");
    }
}
