//! # Allocators that compete
//!
//! Ours, the C library's own, and those that are installed in the usual
//! directories. What is missing is said, with the Debian package that has it.

use super::harness::OURS;
use crate::proc;
use allotment_engine::stat::board::CONF_ENV;
use std::ffi::OsString;
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

/// What can be installed: name, files by preference, package.
const KNOWN: &[(&str, &[&str], &str)] = &[
    ("jemalloc", &["libjemalloc.so.2"], "libjemalloc2"),
    ("tcmalloc", &["libtcmalloc_minimal.so.4", "libtcmalloc_minimal.so.4.5.9"], "libtcmalloc-minimal4"),
    ("mimalloc", &["libmimalloc.so.3", "libmimalloc.so.2"], "libmimalloc2.0"),
];

/// Where libraries are.
const DIRECTORIES: &[&str] =
    &["/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64"];

impl Peer {
    /// Preloads it in a command. Peers get no preload but their own.
    pub fn apply(&self, command: &mut Command, conf: &Option<OsString>) {
        command.env_remove("LD_PRELOAD").env_remove(CONF_ENV).env_remove("ALLOTMENT_SHARE");
        if let Some(library) = &self.library {
            command.env("LD_PRELOAD", library);
        }
        if let (OURS, Some(conf)) = (self.name.as_str(), conf) {
            command.env(CONF_ENV, conf);
        }
    }
}

/// The C library's own.
fn system() -> Peer {
    Peer { name: "glibc".into(), library: None, owner: "libc.so.6".into(), version: proc::libc_version() }
}

/// The file of a library in the usual directories.
pub fn find_library(files: &[&str]) -> Option<PathBuf> {
    let in_order =
        files.iter().flat_map(|file| DIRECTORIES.iter().map(move |directory| Path::new(directory).join(file)));
    in_order.into_iter().find(|path| path.is_file())
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
                None => missing.push(format!("{name} is not installed (Debian: {package})")),
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
    fn peers_are_chosen_by_name() {
        let ours = Path::new("/x/liballotment.so");
        let (found, _) = peers(ours, Some(&["glibc".into()])).expect("known");
        assert_eq!(found.iter().map(|peer| peer.name.as_str()).collect::<Vec<_>>(), ["allotment", "glibc"]);
        assert!(peers(ours, Some(&["nobody".into()])).expect_err("unknown").contains("jemalloc"));
        let (found, _) = peers(ours, Some(&["me=/bin/sh".into()])).expect("a path");
        assert_eq!(found[1].name, "me");
    }
}
