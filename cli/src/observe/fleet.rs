//! # Every process that publishes
//!
//! `stat --all --openmetrics` looks at all that may be looked into, in containers too, and asks none of them for
//! anything. Written for collectors of files: whole or not at all.

use super::find;
use super::metrics;
use super::view::View;
use crate::file::unwritten;
use crate::proc;
use crate::term::{print, printable};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The metrics of all.
pub fn exposition() -> String {
    let views: Vec<View> = find::all()
        .filter_map(|target| View::take(&target, false).ok())
        // (One that ended meanwhile has no name any more.)
        .filter(|view| !proc::name(view.pid).is_empty())
        .collect();
    metrics::of_all(views.iter().map(|view| (labels(view.pid), view)))
}

/// Whose a sample is.
fn labels(pid: u32) -> Vec<(&'static str, String)> {
    let cgroups = proc::cgroups(pid);
    vec![("pid", pid.to_string()), ("name", proc::name(pid)), ("cgroup", printable(memory_cgroup(&cgroups)))]
}

/// The cgroup that counts a process's memory: that of the controller where it has a hierarchy of its own, or the common one.
fn memory_cgroup(text: &str) -> &str {
    let of = |controller: &str| {
        text.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers.split(',').any(|name| name == controller).then_some(path)
        })
    };
    of("memory").or_else(|| of("")).unwrap_or_default()
}

/// Writes a file that appears when it is whole, or standard output for no file and `-`.
///
/// # Errors
/// One line.
pub fn write(path: Option<&Path>, text: &str) -> Result<(), String> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else { return print(text) };
    let failed = |error: io::Error| unwritten(path, &error);
    // A device or a pipe is no file to be replaced.
    if fs::metadata(path).is_ok_and(|info| !info.is_file()) {
        return OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file: File| file.write_all(text.as_bytes()))
            .map_err(failed);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // (Collectors look at `*.prom` only.)
    let unfinished = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let done = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&unfinished)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&unfinished, path));
    if done.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    done.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_is_that_of_memory() {
        assert_eq!(memory_cgroup("0::/system.slice/x.service\n"), "/system.slice/x.service");
        assert_eq!(memory_cgroup("9:cpu,cpuacct:/a\n4:memory:/b:c\n0::/\n"), "/b:c");
        assert_eq!(memory_cgroup("9:cpu:/a\n"), "");
    }

    #[test]
    fn a_file_is_replaced_whole_or_stays() {
        let directory = std::env::temp_dir().join(format!("allotment-fleet-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("made");
        let path = directory.join("a.prom");
        for text in ["one\n", "two\n"] {
            write(Some(&path), text).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("there"), text);
        }
        assert_eq!(fs::read_dir(&directory).expect("there").count(), 1);
        let line = write(Some(&directory.join("none/a.prom")), "x").expect_err("no directory");
        assert!(line.contains("No such file") && !line.contains('\n'), "{line}");
        assert!(write(Some(Path::new("/dev/full")), "x").expect_err("full").contains("No space left"));
        fs::remove_dir_all(&directory).expect("removed");
    }
}
