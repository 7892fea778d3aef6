//! # The program's file
//!
//! Which file a name means (PATH), and whether a preload can reach what is in
//! it. Nothing here decides whether the program runs: the kernel does that.
//!
//! A preload is the dynamic linker's work, so it reaches a file only if the
//! file names one (`PT_INTERP`) of our own word size and processor, and the
//! kernel does not start it in secure mode (set-uid, set-gid, capabilities).
//! `#!` scripts are followed to their interpreter, as the kernel does.
#![allow(unsafe_code)] // getuid, access, statvfs, getxattr, prctl

use crate::file::Found;
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Where the C library looks when there is no PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// Interpreters of interpreters that the kernel follows, and one more.
const SCRIPTS_MAX: usize = 6;
/// Program headers looked at.
const HEADERS_MAX: u16 = 512;

/// Whether a preload reaches a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It does.
    Yes,
    /// It cannot be told.
    Unknown,
    /// No dynamic linker: statically linked.
    Static(PathBuf),
    /// Another processor or word size.
    Foreign(PathBuf),
    /// The kernel starts it with other rights, and the linker ignores preloads.
    Secure(PathBuf, &'static str),
}

impl Reach {
    /// Half a line, if it does not.
    pub fn why_not(&self) -> Option<String> {
        match self {
            Self::Yes | Self::Unknown => None,
            Self::Static(path) => Some(format!("{} is statically linked, no preload can reach it", path.display())),
            Self::Foreign(path) => Some(format!("{} is for another processor than this library", path.display())),
            Self::Secure(path, how) => {
                Some(format!("{} {how}, so the dynamic linker ignores preloads", path.display()))
            }
        }
    }
}

/// Programs that become others, with other rights or another environment.
const LAUNCHERS: [&str; 30] = [
    "bash",
    "bwrap",
    "capsh",
    "chpst",
    "chroot",
    "dash",
    "doas",
    "env",
    "firejail",
    "gosu",
    "ksh",
    "newgrp",
    "nsenter",
    "pkexec",
    "runuser",
    "s6-applyuidgid",
    "s6-setuidgid",
    "setarch",
    "setpriv",
    "setuidgid",
    "sg",
    "sh",
    "softlimit",
    "start-stop-daemon",
    "su",
    "su-exec",
    "sudo",
    "unshare",
    "zsh",
    "busybox",
];

/// Whether a program is there to start another one in its place: by its name, or a script of a shell. (A shell that is not told what to do talks
/// to somebody.)
pub fn is_launcher(program: &[std::ffi::OsString], found: Option<&Path>) -> bool {
    let name = Path::new(&program[0]).file_name().unwrap_or_default();
    let is_script = || {
        let mut start = Vec::new();
        let file = found.and_then(|path| Found::at(path, true).ok()?.open(false).ok());
        let _ = file.is_some_and(|file| file.take(256).read_to_end(&mut start).is_ok());
        interpreter(&start).is_some_and(|shell| shell.as_os_str().as_bytes().ends_with(b"sh"))
    };
    program.len() > 1 && LAUNCHERS.iter().any(|launcher| name == OsStr::new(launcher)) || is_script()
}

/// The file that `name` means, as `execvp` searches.
pub fn search(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    search_in(name, &path)
}

fn search_in(name: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    if name.as_bytes().contains(&b'/') {
        return Path::new(name).exists().then(|| name.into());
    }
    path.as_bytes().split(|&byte| byte == b':').find_map(|directory| {
        // An empty entry is the working directory.
        let directory = if directory.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(directory)) };
        let file = directory.join(name);
        (file.is_file() && is_executable(&file)).then_some(file)
    })
}

/// Whether this process may execute it.
fn is_executable(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: `path` ends in NUL and lives through the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// Looks into a file, and into its interpreters.
pub fn inspect(path: &Path) -> Reach {
    let mut path = path.to_path_buf();
    for _ in 0..SCRIPTS_MAX {
        let mut start = Vec::with_capacity(256);
        // (Never a fifo: whoever opens one waits.)
        let Ok(file) = Found::at(&path, true).and_then(|found| found.open(false)) else { return Reach::Unknown };
        if (&file).take(256).read_to_end(&mut start).is_err() {
            return Reach::Unknown;
        }
        match interpreter(&start) {
            Some(next) => path = next,
            None if start.starts_with(b"\x7fELF") => {
                let by_file = elf(&path, &start, &file);
                return if by_file == Reach::Yes { rights(&path) } else { by_file };
            }
            // `execvp` gives a text without `#!` to the shell.
            None => path = "/bin/sh".into(),
        }
    }
    Reach::Unknown
}

/// What a `#!` line names; `env NAME` is followed too.
fn interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let program = Path::new(OsStr::from_bytes(words.next()?));
    if program.file_name() == Some(OsStr::new("env"))
        && let Some(name) = words.find(|word| *word != b"-S" && !word.contains(&b'='))
        && !name.starts_with(b"-")
    {
        return search(OsStr::from_bytes(name));
    }
    Some(program.into())
}

/// A little-endian or native number at `at`; 0 beyond the end.
fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    let slice = bytes.get(at..at.saturating_add(width)).unwrap_or_default();
    slice.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// This processor's number in ELF.
const fn machine() -> u64 {
    if cfg!(target_arch = "x86_64") {
        62
    } else if cfg!(target_arch = "aarch64") {
        183
    } else if cfg!(target_arch = "riscv64") {
        243
    } else {
        0
    }
}

/// Whether an ELF file names a dynamic linker of ours.
fn elf(path: &Path, start: &[u8], file: &File) -> Reach {
    const WIDE: u8 = 2;
    const LITTLE: u8 = 1;
    const INTERP: u64 = 3;
    if start.get(4) != Some(&WIDE) || start.get(5) != Some(&LITTLE) || number(start, 18, 2) != machine() {
        return Reach::Foreign(path.into());
    }
    // The dynamic linker itself names none and does preload.
    let is_linker =
        path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-linux") || name.as_bytes() == b"ld.so");
    if is_linker {
        return Reach::Yes;
    }
    let (table, size, count) = (number(start, 32, 8), number(start, 54, 2), number(start, 56, 2));
    for header in 0..count.min(u64::from(HEADERS_MAX)) {
        let mut kind = [0; 4];
        let at = table.saturating_add(header.saturating_mul(size));
        if file.read_exact_at(&mut kind, at).is_err() {
            return Reach::Unknown;
        }
        if u64::from(u32::from_le_bytes(kind)) == INTERP {
            return Reach::Yes;
        }
    }
    Reach::Static(path.into())
}

/// Whether the kernel would start the file in secure mode.
fn rights(path: &Path) -> Reach {
    let (Ok(info), Ok(text)) = (fs::metadata(path), CString::new(path.as_os_str().as_bytes())) else {
        return Reach::Unknown;
    };
    // SAFETY: no pointers; `text` ends in NUL; all-zero bytes are a valid
    // statvfs; a null buffer of length 0 only asks for the attribute's size.
    let (user, group, ignored, capable) = unsafe {
        let mut mount: libc::statvfs = std::mem::zeroed();
        let no_suid = libc::statvfs(text.as_ptr(), &raw mut mount) == 0 && mount.f_flag & libc::ST_NOSUID != 0;
        let no_new = libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
        let size = libc::getxattr(text.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0);
        (libc::getuid(), libc::getgid(), no_suid || no_new, size > 0)
    };
    secure(&info, user, group, capable && user != 0, ignored).map_or(Reach::Yes, |how| Reach::Secure(path.into(), how))
}

/// The rule of the kernel's `bprm` for secure mode.
fn secure(info: &fs::Metadata, user: u32, group: u32, capable: bool, ignored: bool) -> Option<&'static str> {
    const GROUP_ID_NEEDS: u32 = libc::S_ISGID | libc::S_IXGRP;
    if ignored {
        None
    } else if info.mode() & libc::S_ISUID != 0 && info.uid() != user {
        Some("is set-uid")
    } else if info.mode() & GROUP_ID_NEEDS == GROUP_ID_NEEDS && info.gid() != group {
        Some("is set-gid")
    } else if capable {
        Some("has file capabilities")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt as _;

    fn scratch(name: &str, content: &[u8], mode: u32) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("allotment-program-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("made");
        let path = directory.join(name);
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        path
    }

    /// A header of an ELF file with one program header.
    fn header(class: u8, machine: u64, kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        bytes[18..20].copy_from_slice(&(machine as u16).to_le_bytes());
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    #[test]
    fn path_is_searched_in_order() {
        let file = scratch("found-me", b"#!/bin/sh\n", 0o755);
        let plain = scratch("not-me", b"", 0o644);
        let directory = file.parent().expect("one").as_os_str().to_owned();
        let mut path = OsString::from("/nonexistent:");
        path.push(&directory);
        assert_eq!(search_in(OsStr::new("found-me"), &path), Some(file.clone()));
        assert_eq!(search_in(OsStr::new("not-me"), &path), None);
        assert_eq!(search_in(OsStr::new("nobody"), &path), None);
        assert_eq!(search_in(OsStr::new(""), &path), None);
        assert_eq!(search_in(plain.as_os_str(), &path), Some(plain));
    }

    #[test]
    fn elf_files_are_told_apart() {
        let dynamic = scratch("dynamic", &header(2, machine(), 3), 0o755);
        let fixed = scratch("static", &header(2, machine(), 1), 0o755);
        let narrow = scratch("narrow", &header(1, 3, 3), 0o755);
        let other = scratch("other", &header(2, 22, 3), 0o755);
        let cut = scratch("cut", &header(2, machine(), 1)[..64], 0o755);
        assert_eq!(inspect(&dynamic), Reach::Yes);
        assert_eq!(inspect(&fixed), Reach::Static(fixed.clone()));
        assert_eq!(inspect(&narrow), Reach::Foreign(narrow.clone()));
        assert_eq!(inspect(&other), Reach::Foreign(other.clone()));
        assert_eq!(inspect(&cut), Reach::Unknown);
        assert_eq!(inspect(&std::env::current_exe().expect("self")), Reach::Yes);
    }

    #[test]
    fn scripts_are_followed() {
        let fixed = scratch("static-2", &header(2, machine(), 1), 0o755);
        let script = scratch("script", format!("#! {} -x\nrest", fixed.display()).as_bytes(), 0o755);
        let outer = scratch("outer", format!("#!{}\n", script.display()).as_bytes(), 0o755);
        let itself = scratch("itself", b"", 0o755);
        fs::write(&itself, format!("#!{}\n", itself.display())).expect("written");
        assert_eq!(inspect(&outer), Reach::Static(fixed));
        assert_eq!(inspect(&itself), Reach::Unknown);
        assert_eq!(interpreter(b"#!/usr/bin/env sh\n"), search(OsStr::new("sh")));
        assert_eq!(interpreter(b"#!/usr/bin/env -S sh -e\n"), search(OsStr::new("sh")));
    }

    #[test]
    fn changed_rights_are_seen() {
        let suid = fs::metadata(scratch("suid", b"", 0o4755)).expect("there");
        let sgid = fs::metadata(scratch("sgid", b"", 0o2755)).expect("there");
        let (user, group) = (suid.uid(), sgid.gid());
        assert_eq!(secure(&suid, user, group, false, false), None);
        assert_eq!(secure(&suid, user + 1, group, false, false), Some("is set-uid"));
        assert_eq!(secure(&suid, user + 1, group, false, true), None);
        assert_eq!(secure(&sgid, user, group + 1, false, false), Some("is set-gid"));
        assert_eq!(secure(&suid, user, group, true, false), Some("has file capabilities"));
    }
}
