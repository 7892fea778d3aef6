//! # Allocators that compete
//!
//! Ours, the C library's own, and those that are installed in the usual
//! directories. What is missing is said, with the Debian package that has it.

use super::rows::OURS;
use crate::proc;
use allotment_engine::stat::board::{CONF_ENV, SHARE_ENV};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An allocator.
#[derive(Clone, Debug)]
pub struct Peer {
    /// As rows name it.
    pub name: String,
    /// What is preloaded; nothing for the C library's own.
    pub library: Option<PathBuf>,
    /// Who must own malloc then: a path, or the name of a file.
    pub owner: PathBuf,
    /// Its package's version, as far as known.
    pub version: String,
}

/// What can be installed: name, files by preference, where from.
const KNOWN: &[(&str, &[&str], &str)] = &[
    ("jemalloc", &["libjemalloc.so.2"], "libjemalloc2"),
    ("tcmalloc", &["libtcmalloc_minimal.so.4", "libtcmalloc_minimal.so.4.5.9"], "libtcmalloc-minimal4"),
    ("mimalloc", &["libmimalloc.so.2"], "libmimalloc2.0"),
    ("mimalloc3", &["libmimalloc.so.3"], CMEEL),
];

/// PyPI's package of mimalloc 3.
const CMEEL: &str = "cmeel-mimalloc";

/// Where libraries are.
const DIRECTORIES: &[&str] =
    &["/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64"];

/// Preloads a peer in a command, or nothing. It gets no preload but its own; where malloc is ours, or no peer's, the knobs
/// `conf` and `more`.
pub fn apply(peer: Option<&Peer>, command: &mut Command, conf: Option<&OsStr>, more: &str) {
    command.env_remove("LD_PRELOAD").env_remove(CONF_ENV).env_remove(SHARE_ENV);
    if let Some(library) = peer.and_then(|peer| peer.library.as_ref()) {
        command.env("LD_PRELOAD", library);
    }
    let words = [conf.unwrap_or_default(), OsStr::new(more)].into_iter().filter(|word| !word.is_empty());
    let words = words.collect::<Vec<_>>().join(OsStr::new(","));
    if peer.is_none_or(|peer| peer.name == OURS) && !words.is_empty() {
        command.env(CONF_ENV, words);
    }
}

/// The C library's own.
fn system() -> Peer {
    Peer { name: "glibc".into(), library: None, owner: "libc.so.6".into(), version: proc::libc_version() }
}

/// The file of a library in the usual directories, or in those of Python's packages.
pub fn find_library(files: &[&str]) -> Option<PathBuf> {
    let directories: Vec<PathBuf> = DIRECTORIES.iter().map(PathBuf::from).chain(of_python()).collect();
    let in_order = files.iter().flat_map(|file| directories.iter().map(move |directory| directory.join(file)));
    in_order.into_iter().find(|path| path.is_file())
}

/// Where Python's packages put libraries (`cmeel.prefix/lib`): in this environment, for this user, for all.
fn of_python() -> Vec<PathBuf> {
    let home = |rest: &str| std::env::var_os("HOME").map(|home| Path::new(&home).join(rest));
    let above = [
        std::env::var_os("VIRTUAL_ENV").map(|place| Path::new(&place).join("lib")),
        home(".local/lib"),
        Some("/usr/local/lib".into()),
        Some("/usr/lib".into()),
    ];
    let mut found = Vec::new();
    for above in above.into_iter().flatten() {
        let Ok(entries) = std::fs::read_dir(above) else { continue };
        for python in entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"python3")) {
            for packages in ["site-packages", "dist-packages"] {
                found.push(python.path().join(packages).join("cmeel.prefix/lib"));
            }
        }
    }
    found
}

/// Half a line about a program that is not here.
pub fn missing(program: &str, package: &str) -> String {
    let from = if package == CMEEL { "PyPI" } else { "Debian" };
    format!("{program} is not installed ({from}: {package})")
}

/// A package's version, if Debian's tools are here.
fn package_version(package: &str) -> String {
    let asked = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output();
    match asked {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        _ => String::new(),
    }
}

/// Ours and those asked for (all that are here, if none is named); with a line
/// for each that is missing.
///
/// # Errors
/// One line about a word that names none.
pub fn peers(ours: &Path, asked: Option<&[String]>) -> Result<(Vec<Peer>, Vec<String>), String> {
    let mut found = vec![Peer {
        name: OURS.into(),
        library: Some(ours.into()),
        owner: ours.into(),
        version: env!("CARGO_PKG_VERSION").into(),
    }];
    let mut missing = Vec::new();
    let all: Vec<String> = ["glibc"].into_iter().chain(KNOWN.iter().map(|known| known.0)).map(String::from).collect();
    for word in asked.unwrap_or(&all) {
        if let Some((name, path)) = word.split_once('=') {
            let path = std::fs::canonicalize(path).map_err(|error| format!("--peers {word}: {error}"))?;
            found.push(Peer { name: name.into(), library: Some(path.clone()), owner: path, version: String::new() });
        } else if word == "glibc" {
            found.push(system());
        } else if word == OURS || word == "none" {
        } else if let Some((name, files, package)) = KNOWN.iter().find(|known| known.0 == word) {
            match find_library(files) {
                Some(path) => found.push(Peer {
                    name: (*name).into(),
                    library: Some(path.clone()),
                    owner: path,
                    version: package_version(package),
                }),
                None => missing.push(self::missing(name, package)),
            }
        } else {
            return Err(format!("--peers {word}: known are {}, none, and NAME=PATH", all.join(", ")));
        }
    }
    Ok((found, missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_for_ours_only() {
        let peer = |name: &str| Peer { name: name.into(), library: Some("/x.so".into()), ..system() };
        let conf = |peer: Option<&Peer>, more: &str| {
            let mut command = Command::new("true");
            apply(peer, &mut command, Some(OsStr::new("a=1")), more);
            let of = |name: &str| command.get_envs().find(|(key, _)| *key == name).and_then(|(_, value)| value);
            (of("LD_PRELOAD").is_some(), of(CONF_ENV).map(|value| value.to_string_lossy().into_owned()))
        };
        assert_eq!(conf(Some(&peer(OURS)), ""), (true, Some("a=1".into())));
        assert_eq!(conf(None, "b=2"), (false, Some("a=1,b=2".into())));
        assert_eq!(conf(Some(&peer("other")), "b=2"), (true, None));
    }

    #[test]
    fn peers_are_chosen_by_name() {
        let ours = Path::new("/x/liballotment.so");
        let (found, _) = peers(ours, Some(&["glibc".into()])).expect("known");
        assert_eq!(found.iter().map(|peer| peer.name.as_str()).collect::<Vec<_>>(), ["allotment", "glibc"]);
        assert!(peers(ours, Some(&["nobody".into()])).expect_err("unknown").contains("jemalloc"));
        let (found, _) = peers(ours, Some(&["me=/bin/sh".into()])).expect("a path");
        assert_eq!(found[1].name, "me");
    }
}
