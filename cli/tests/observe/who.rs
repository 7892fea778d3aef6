//! Which process is meant, and who may look.

use super::watched::{MIB, Watched, adds_up, allotment, done, fails, number};
use crate::common::{ALLOTMENT, Scratch, copy_program, need, program, skip};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Another user's process is not looked into; root looks into everybody's.
#[test]
fn other_users_are_refused() {
    let test = "other_users_are_refused";
    let Some(setpriv) = need(test, "setpriv", "util-linux") else { return };
    let nobody = |program: &str| {
        let mut command = Command::new(&setpriv);
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", program]);
        command
    };
    // (The command is executed with what rights are left; what it executes is not.)
    let Some(program) = program("watched.c") else { return };
    let tried = nobody(ALLOTMENT).args(["run", "--", &program]).stdin(Stdio::null()).output();
    if !tried.is_ok_and(|output| output.stdout.starts_with(b"ready")) {
        return skip(test, "nobody cannot run programs of this directory");
    }
    let Some(watched) = Watched::start(&[]) else { return };
    for command in ["stat", "drain", "purge"] {
        let output = nobody(ALLOTMENT).args([command, &watched.pid.to_string()]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("belongs to somebody else") && said.lines().count() == 1, "{said}");
    }
    let output = nobody(ALLOTMENT).arg("stat").output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(watched.file().exists(), "swept by another user");
    drop(watched);
    let Some(watched) = Watched::start_by(nobody(ALLOTMENT), &[]) else { return };
    assert_eq!(fs::metadata(watched.file()).unwrap().uid(), 65_534);
    adds_up(&watched.json(&[]));
    watched.done("drain", &[]);
}

/// Under `run --stats` the board is the command's, and is found through the environment.
#[test]
fn a_program_under_stats_is_found() {
    let scratch = Scratch::new("stats");
    let stats = format!("--stats={}", scratch.join("stats.json").display());
    let Some(mut watched) = Watched::start(&[&stats]) else { return };
    assert_ne!(watched.pid, watched.child.id());
    let all = watched.json(&[]);
    adds_up(&all);
    assert_eq!(number(&all, "/pid"), u64::from(watched.pid));
    assert_eq!(all["silence"], Value::Null);
    watched.done("drain", &[]);
    fails(&["stat", &watched.child.id().to_string()], 1, &["does not run on Allotment"]);
    writeln!(watched.input, "end").unwrap();
    assert!(watched.child.wait().unwrap().success());
}

#[test]
fn one_that_publishes_nothing_is_told_how() {
    let Some(watched) = Watched::start(&["--set", "publish=off", "--set", "keeper_bytes=0"]) else { return };
    assert!(!watched.file().exists());
    watched.fails("stat", &[], 1, &["runs on Allotment but publishes nothing", "publish=on"]);
    fails(&["stat", &std::process::id().to_string()], 1, &["does not run on Allotment"]);
    fails(&["stat", "4000000000"], 1, &["no process"]);
}

/// What is asked wrongly is answered clearly, and nothing is done.
#[test]
fn wrong_words_are_answered() {
    let Some(watched) = Watched::start(&[]) else { return };
    watched.fails("drain", &["--cpu", "4096"], 2, &["no CPU 4096", "this machine has 0"]);
    watched.fails("tune", &["8MiB"], 2, &["`8MiB`", "KEY=VALUE"]);
    for words in [&["--openmetrics"][..], &["--watch", "1"]] {
        fails(&[&["stat"], words].concat(), 2, &["whose?"]);
    }
    let said = String::from_utf8(allotment(&["stat", "--json", "--watch", "1"]).stderr).unwrap();
    assert!(said.contains("--watch wants a process") && !said.contains("--all"), "{said}");
    for command in ["stat", "top", "tune", "drain", "purge", "profile"] {
        let output = allotment(&[command, ""]);
        let said = String::from_utf8(output.stderr).unwrap();
        let is_told =
            said.contains("an empty name is nobody's") || command == "top" && said.contains("wants a terminal");
        assert!(output.status.code() == Some(1) && is_told, "{command}: {said}");
    }
    // Metrics only, and of all only metrics.
    let pid = watched.pid.to_string();
    for words in [
        &["--all", "--json"][..],
        &["--all", "--watch", "1"],
        &[&pid, "--json", "--output", "-"],
        &[&pid, "vmstat", "--output", "-"],
        &[&pid, "--watch", "1", "--output", "-"],
    ] {
        let output = allotment(&[&["stat"], words].concat());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{words:?}");
    }
    watched.fails("tune", &["lazy_floor=8MiBs"], 2, &["`8MiBs`", "bytes from"]);
    assert_eq!(watched.done("tune", &["cache_floor=2.5 MiB"]), "cache_floor: 4M → 2560K\n");
    assert_eq!(watched.done("tune", &["cache_floor=3,145,728"]), "cache_floor: 2560K → 3M\n");
    let held = number(&watched.json(&[]), "/memory/in_use");
    assert!(held > 8 * MIB, "{held}");
    watched.fails("tune", &["hard_limit=8M"], 1, &["hard_limit=8M", "in use", "nothing was changed"]);
    assert_eq!(watched.json(&["knobs"])["knobs"]["hard_limit"]["text"], "none");
    assert_eq!(watched.done("tune", &["hard_limit=cgroup"]), "hard_limit: none → cgroup\n");
    assert_eq!(watched.done("tune", &["hard_limit=1G"]), "hard_limit: cgroup → 1G\n");
    for words in [&["stat"][..], &["stat", &pid], &["stat", &pid, "--json"], &["tune", &pid], &["purge", &pid]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(ALLOTMENT).args(words).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*said), (Some(1), "allotment: cannot write: No space left on device\n"));
    }
}

/// A copy of `watched.c`, running, with these words before `--`.
fn started(program: &Path, words: &[&str]) -> Watched {
    let mut command = Command::new(ALLOTMENT);
    command.arg("run").args(words).arg("--").arg(program).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut watched = Watched { child, input, output, pid: 0 };
    watched.pid = watched.line("ready");
    watched
}

/// A name where a number is wanted; of several, the one who asks chooses.
#[test]
fn programs_are_found_by_name() {
    let Some(binary) = program("watched.c") else { return };
    let scratch = Scratch::new("named");
    let name = format!("named-{}", std::process::id());
    copy_program(&binary, &scratch.join(&name));
    let start = || started(&scratch.join(&name), &[]);
    fails(&["stat", &name], 1, &["no program that publishes", &name]);
    let one = start();
    let all: Value = serde_json::from_str(&done(&["stat", &name, "--json"])).unwrap();
    assert_eq!(all["pid"], one.pid);
    assert!(done(&["drain", &name]).contains("objects from"));
    assert!(done(&["tune", &name, "drain"]).starts_with("drain "));
    let two = start();
    for command in ["stat", "purge", "tune", "drain"] {
        let output = allotment(&[command, &name]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with(&format!("allotment: 2 programs are called {name}")), "{said}");
        for pid in [one.pid, two.pid] {
            assert!(said.lines().any(|line| line.trim_start().starts_with(&pid.to_string())), "{said}");
        }
    }
    drop(one);
    assert!(done(&["purge", &name]).contains("given back"));
    // A file of that name is one by its path.
    fs::copy(two.file(), scratch.join("copy")).unwrap();
    let copy = Command::new(ALLOTMENT).args(["stat", "copy"]).current_dir(scratch.path()).output().unwrap();
    assert!(copy.status.success());
}

/// The kernel cuts a name behind 15 bytes, in the middle of a letter if need be.
#[test]
fn a_name_that_is_cut_in_a_letter_is_read() {
    let Some(binary) = program("watched.c") else { return };
    let scratch = Scratch::new("cut");
    let name = "watched-longerü";
    assert_eq!(name.len(), 16);
    copy_program(&binary, &scratch.join(name));
    let watched = started(&scratch.join(name), &["--set", "profile_bytes=8K"]);
    let pid = watched.pid.to_string();
    // (Its path may be cut.)
    assert!(done(&["stat"]).lines().any(|line| line.split_whitespace().next() == Some(&pid)));
    assert_eq!(watched.json(&[])["pid"], watched.pid);
    for (command, words) in [("stat", &[][..]), ("profile", &[]), ("tune", &["drain"]), ("drain", &[]), ("purge", &[])]
    {
        watched.done(command, words);
    }
    assert!(done(&["stat", name]).contains(&pid));
    let metrics = done(&["stat", "--all", "--openmetrics"]);
    assert!(metrics.contains(&format!("{{pid=\"{pid}\",name=\"watched-longer")), "{metrics}");
}

/// Whatever shows a board shows all of them: those of files, and those that `run` holds for its program.
#[test]
fn a_program_that_run_attends_is_listed_and_named() {
    let Some(binary) = program("watched.c") else { return };
    let scratch = Scratch::new("attended");
    let name = format!("held-{}", std::process::id());
    copy_program(&binary, &scratch.join(&name));
    let profile = format!("--profile={}", scratch.join("heap.pb.gz").display());
    let stats = format!("--stats={}", scratch.join("stats").display());
    for option in [&stats, &profile] {
        let watched = started(&scratch.join(&name), &[option]);
        assert!(!watched.file().exists());
        let pid = watched.pid.to_string();
        let is_its = |line: &str| line.split_whitespace().next() == Some(&pid);
        assert!(done(&["stat"]).lines().any(is_its), "{option}");
        let listed: Value = serde_json::from_str(&done(&["stat", "--json"])).unwrap();
        assert!(listed.as_array().unwrap().iter().any(|program| program["pid"] == watched.pid), "{listed}");
        let all: Value = serde_json::from_str(&done(&["stat", &name, "--json"])).unwrap();
        assert_eq!(all["pid"], watched.pid);
        assert!(done(&["drain", &name]).contains("objects from"));
    }
}

/// A program in a pid namespace of its own is found from outside by the number that it has there.
#[test]
fn a_program_in_a_container_is_found() {
    let test = "a_program_in_a_container_is_found";
    let Some(unshare) = need(test, "unshare", "util-linux") else { return };
    let words = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let is_allowed =
        Command::new(&unshare).args(words).arg("true").output().is_ok_and(|output| output.status.success());
    if !is_allowed {
        return skip(test, "no pid namespace can be made here");
    }
    let mut command = Command::new(&unshare);
    command.args(words).arg(ALLOTMENT);
    let Some(mut watched) = Watched::start_by(command, &[]) else { return };
    let inner = watched.pid;
    let parent = watched.child.id();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    watched.pid = children.split_whitespace().next().unwrap().parse().unwrap();
    assert_ne!(watched.pid, inner);
    let all = watched.json(&[]);
    adds_up(&all);
    assert_eq!((number(&all, "/pid"), number(&all, "/pid_in_namespace")), (u64::from(watched.pid), u64::from(inner)));
    watched.done("drain", &[]);
    let metrics = done(&["stat", "--all", "--openmetrics"]);
    assert!(metrics.contains(&format!("allotment_in_use_bytes{{pid=\"{}\"", watched.pid)), "{metrics}");
    let listed = done(&["stat"]);
    assert!(listed.lines().any(|line| line.split_whitespace().next() == Some(&watched.pid.to_string())), "{listed}");
    // Its file belongs to a namespace that is not ours to sweep.
    let link = fs::read_link(format!("/proc/{}/ns/pid", watched.pid)).unwrap();
    let namespace: String = link.to_str().unwrap().chars().filter(char::is_ascii_digit).collect();
    let file = PathBuf::from(format!("/dev/shm/allotment-{namespace}-{inner}"));
    done(&["stat"]);
    assert!(file.exists());
    drop(watched);
    let _ = fs::remove_file(file);
}
