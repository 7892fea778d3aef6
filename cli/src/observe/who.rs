//! # Which process is meant
//!
//! A process id, or a name: that of the process or of its program's file, among the processes that publish. Of several,
//! the one who asks chooses.

use super::find::{self, Target};
use super::text;
use super::view::View;
use crate::proc;
use crate::term::printable;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Letters that the kernel keeps of a process's name.
const COMM: usize = 15;
/// Said where nothing can be looked into.
pub const NOBODY: &str =
    "no program of yours publishes its heap: start one by `allotment run`, or with ALLOTMENT_CONF=publish=on";

/// What `stat` may be asked about: a process, or a copy of a board.
///
/// # Errors
/// One line; a list to choose from stands on standard error before it.
pub fn target_or_copy(word: &OsStr) -> Result<Target, String> {
    let path = Path::new(word);
    let Some(name) = word.to_str().filter(|word| !word.contains('/')) else { return Target::copy(path) };
    match named(name)? {
        Some(target) => Ok(target),
        None if path.exists() => Target::copy(path),
        None => Err(nobody(name)),
    }
}

/// A process.
///
/// # Errors
/// One line; a list to choose from stands on standard error before it.
pub fn target(word: &str) -> Result<Target, String> {
    named(word)?.ok_or_else(|| nobody(word))
}

/// `None`: a name that nobody has.
pub fn named(word: &str) -> Result<Option<Target>, String> {
    if word.is_empty() {
        return Err("an empty name is nobody's; `allotment stat` lists the programs that there are".into());
    }
    if let Ok(pid) = word.parse() {
        return Target::of(pid).map(Some);
    }
    let mut found: Vec<Target> = find::all().filter(|target| is_called(target.pid, word)).collect();
    if found.len() > 1 {
        // (What is said of a failure is one line: a name cannot begin another.)
        let _ = io::stderr().lock().write_all(list(&found).as_bytes());
        return Err(format!("{} programs are called {}; name one by its PID", found.len(), printable(word)));
    }
    Ok(found.pop())
}

/// The processes with a heading, a line each.
pub fn list(targets: &[Target]) -> String {
    let views = targets.iter().filter_map(|target| View::take(target, false).ok());
    views.fold(format!("{}\n", text::LIST_HEADING), |list, view| list + &text::listed(&view) + "\n")
}

fn nobody(name: &str) -> String {
    let name = printable(name);
    format!("no program that publishes its heap is called {name}; `allotment stat` lists those that do")
}

/// Whether a process, or the file of its program, has this name.
fn is_called(pid: u32, word: &str) -> bool {
    let cut = &word.as_bytes()[..word.len().min(COMM)];
    proc::comm(pid).unwrap_or_default().as_bytes() == cut || program(pid).is_some_and(|name| name == word)
}

/// The name of the file of a process's program.
fn program(pid: u32) -> Option<String> {
    let path = proc::program(pid).ok()?;
    let name = path.file_name()?.to_str()?;
    // (As the kernel marks a file that was replaced.)
    Some(name.strip_suffix(" (deleted)").unwrap_or(name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_called_by_its_file_and_its_name() {
        let own = std::process::id();
        let file = program(own).expect("readable");
        assert!(is_called(own, &file) && is_called(own, proc::name(own).as_str()));
        assert!(!is_called(own, "") && !is_called(own, &file[1..]));
    }

    #[test]
    fn a_name_that_nobody_has_is_said() {
        let line = target("no-such-program-anywhere\u{1b}").expect_err("nobody");
        assert!(line.contains("no-such-program-anywhere?") && !line.contains('\n'), "{line}");
        assert!(target_or_copy(OsStr::new("./none")).is_err_and(|line| line.contains("No such file")));
    }
}
