//! Files that are no boards, boards of the dead, and no room for one.

use super::watched::{Watched, adds_up, allotment, done, fails, list, until};
use crate::common::{ALLOTMENT, BOTH, Mode, Scratch, modes, program, skip};
use allotment_engine::stat::board::{MAGIC, SHARE_BYTES, SHOW, TALLIES, VERSION};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

/// A board in a file, changed at one place, is refused by a line that says why; nothing of it kills the command.
#[test]
fn files_that_are_no_boards_are_refused() {
    let Some(watched) = Watched::start(&[]) else { return };
    watched.json(&[]);
    let scratch = Scratch::new("boards");
    let path = scratch.join("board");
    let name = path.to_str().unwrap();
    let whole = fs::read(watched.file()).unwrap();
    assert_eq!(whole.len(), SHARE_BYTES);
    // (Behind the tallies in use there are only holes.)
    let whole = whole[..TALLIES + 64 * 1024].to_vec();
    fs::write(&path, &whole).unwrap();
    let copy: Value = serde_json::from_str(&done(&["stat", name, "--json"])).unwrap();
    adds_up(&copy);
    assert!(list(&copy, "/vmallocinfo/areas").len() >= 2, "{copy}");
    done(&["stat", name]);
    fails(&["stat", name, "--watch", "1"], 1, &["copy"]);
    for (bytes, said) in [(0, "truncated"), (100, "truncated"), (TALLIES - 1, "truncated")] {
        fs::write(&path, &whole[..bytes]).unwrap();
        fails(&["stat", name], 1, &[said]);
    }
    let change = |at: usize, with: &[u8], said: &[&str]| {
        let mut bytes = whole.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        fs::write(&path, &bytes).unwrap();
        fails(&["stat", name], 1, said);
    };
    change(0, &[0; 8], &["empty"]);
    change(0, b"GARBAGE!", &["not a board"]);
    change(8, &(!VERSION).to_ne_bytes(), &["made by another version", &format!("{:08x}", !VERSION)]);
    // Random bytes behind a right head: any numbers, no panic.
    let mut state = 88_172_645_463_325_252_u64;
    for round in 0..4 {
        let mut bytes = whole.clone();
        let (from, to) = if round % 2 == 0 { (16, 64 * 1024) } else { (SHOW + 4, SHOW + 64 * 1024) };
        for chunk in bytes[from..to].chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            chunk.copy_from_slice(&state.to_ne_bytes()[..chunk.len()]);
        }
        fs::write(&path, &bytes).unwrap();
        // (Random sets may be as many as there can be.)
        File::options().write(true).open(&path).unwrap().set_len(SHARE_BYTES as u64).unwrap();
        for words in
            [&[][..], &["--json"], &["--openmetrics"], &["zoneinfo", "vmallocinfo", "latency", "slabinfo", "knobs"]]
        {
            done(&[&["stat", name], words].concat());
        }
    }
    fails(&["stat", "/dev/null"], 1, &["regular"]);
    fails(&["stat", scratch.path().to_str().unwrap()], 1, &["regular"]);
    fails(&["stat", "/nonexistent"], 1, &["No such file"]);
}

/// The file that a living process publishes is believed only as it made it.
#[test]
fn a_file_that_was_tampered_with_is_not_believed() {
    let Some(watched) = Watched::start(&[]) else { return };
    let path = watched.file();
    let info = fs::metadata(&path).unwrap();
    assert_eq!((info.mode() & 0o777, info.len()), (0o600, SHARE_BYTES as u64));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    watched.fails("stat", &[], 1, &["not believed", "644"]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&(!VERSION).to_ne_bytes(), 8).unwrap();
    watched.fails("stat", &[], 1, &["made by another version"]);
    file.write_all_at(&VERSION.to_ne_bytes(), 8).unwrap();
    file.write_all_at(&1_u32.to_ne_bytes(), 12).unwrap();
    watched.fails("tune", &[], 1, &["of process 1"]);
    file.write_all_at(&watched.pid.to_ne_bytes(), 12).unwrap();
    file.write_all_at(&0_u64.to_ne_bytes(), 0).unwrap();
    watched.fails("purge", &[], 1, &["empty"]);
    file.write_all_at(&MAGIC.to_ne_bytes(), 0).unwrap();
    if info.uid() == 0 && std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
        watched.fails("stat", &[], 1, &["not believed", "65534"]);
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    }
    watched.done("stat", &[]);
    // Another file of the right name, which it does not map.
    fs::rename(&path, path.with_extension("kept")).unwrap();
    fs::copy(path.with_extension("kept"), &path).unwrap();
    watched.fails("stat", &[], 1, &["publishes nothing"]);
    fs::remove_file(path.with_extension("kept")).unwrap();
    let _ = fs::remove_file(&path);
}

/// What a killed process leaves is swept by the next look; a dead process is told apart from one that publishes nothing.
#[test]
fn the_dead_are_swept() {
    let Some(watched) = Watched::start(&[]) else { return };
    let (path, pid) = (watched.file(), watched.pid.to_string());
    assert!(path.exists());
    drop(watched);
    fails(&["stat", &pid], 1, &["no process"]);
    assert!(!path.exists());
    // And one that ends by itself leaves nothing.
    let Some(mut watched) = Watched::start(&[]) else { return };
    let path = watched.file();
    writeln!(watched.input, "end").unwrap();
    watched.child.wait().unwrap();
    assert!(!path.exists());
}

/// After an exec of something else the file is nobody's, and is swept.
#[test]
fn what_exec_leaves_is_stale() {
    let Some(mut watched) = Watched::start(&[]) else { return };
    let path = watched.file();
    watched.tell("exec");
    let command = format!("/proc/{}/comm", watched.pid);
    until("exec", || fs::read_to_string(&command).is_ok_and(|name| name == "sleep\n"));
    watched.fails("stat", &[], 1, &["does not run on Allotment"]);
    let old = SystemTime::now() - Duration::from_secs(60);
    if let Ok(file) = File::options().write(true).open(&path) {
        file.set_modified(old).unwrap();
    }
    watched.fails("drain", &[], 1, &["does not run on Allotment"]);
    done(&["stat"]);
    assert!(!path.exists());
}

/// A stranger's file or directory in the place of a board is said to be there.
#[test]
fn a_name_that_is_taken_is_said() {
    let Some(watched) = Watched::start(&[]) else { return };
    let path = watched.file();
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
        watched.fails("stat", &[], 1, &["publishes nothing", "taken by user 65534", path.to_str().unwrap()]);
    } else {
        skip("a_name_that_is_taken_is_said", "cannot give a file away here");
    }
    fs::remove_dir(&path).unwrap();
}

/// Runs a script of the shell with a `/dev/shm` of its own, of `size`; `$1` is the command, `$2` the program. `None`: skipped.
fn with_shared_memory(test: &str, size: &str, script: &str, program: &str) -> Option<Output> {
    let mount = "mount -t tmpfs -o size=$0 none /dev/shm || exit 77; ";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &format!("{mount}{script}"), size, ALLOTMENT, program]);
    let output = command.env("LC_ALL", "C").output().ok()?;
    if output.status.code() == Some(77) || String::from_utf8_lossy(&output.stderr).contains("unshare: ") {
        skip(test, "cannot mount a /dev/shm of its own here");
        return None;
    }
    Some(output)
}

/// However little room there is, the program goes on; others see what has room.
#[test]
fn a_full_shared_memory_costs_what_is_seen() {
    let test = "a_full_shared_memory_costs_what_is_seen";
    let Some(program) = program("crowd.c") else { return };
    for mode in modes(BOTH).into_iter().filter(|&mode| mode != Mode::Plain) {
        let run = format!("\"$1\" run --set mode={} --set profile_bytes=64K --", mode.knob());
        for size in ["4k", "16k", "24k", "28k", "64k", "128k"] {
            let Some(output) = with_shared_memory(test, size, &format!("{run} \"$2\"; echo $?"), &program) else {
                return;
            };
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.starts_with("ok ") && text.ends_with("\n0\n"), "{size}: {output:?}");
            assert!(output.stderr.is_empty(), "{size}: {output:?}");
        }
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return;
    }
    // Room for the board and two tallies: some sets are missing, and the texts.
    let scratch = Scratch::new("full");
    let said = scratch.join("said").display().to_string();
    let script = format!(
        "mkfifo /dev/shm/in; \"$1\" run --set mode=fallback -- \"$2\" wait < /dev/shm/in > {said} & exec 3> /dev/shm/in; \
         until grep ok {said}; do kill -0 $! || exit 1; sleep 0.05; done; \"$1\" stat $! zoneinfo vmstat; echo $?"
    );
    let Some(output) = with_shared_memory(test, "24k", &script, &program) else { return };
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("allocs ") && text.ends_with("0\n"), "{text}{said}");
    assert!(said.contains("sets of process") && said.contains("/dev/shm was full"), "{said}");
    assert!(said.contains("has no room for it in its file"), "{said}");
}

/// A process may write no file as long as a board: it runs, without; `run --stats` says so.
#[test]
fn a_limit_of_files_is_asked_first() {
    let Some(program) = program("crowd.c") else { return };
    for (stats, lines) in [("", 0), ("--stats", 1)] {
        let script = format!("ulimit -f 1000; exec \"$0\" run {stats} -- \"$1\"");
        let output = Command::new("sh").args(["-c", &script, ALLOTMENT, &program]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout.starts_with(b"ok "), "{output:?}");
        assert_eq!(said.lines().count(), lines, "{said}");
        assert!(lines == 0 || said.contains("no statistics") && said.contains("ulimit -f"), "{said}");
    }
}

/// A process that cuts its board when it is asked costs a line, and nobody's life.
#[test]
fn a_board_that_is_cut_is_a_line() {
    let Some(watched) = Watched::start(&[]) else { return };
    watched.json(&[]);
    let Some(liar) = program("liar.c") else { return };
    let mut child = Command::new(liar).arg(watched.file()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = line.trim().strip_prefix("ready ").expect("ready").to_owned();
    for words in [&["purge", &pid][..], &["drain", &pid], &["stat", &pid, "zoneinfo"], &["tune", &pid, "lazy_floor=1M"]]
    {
        // (Which of its looks finds it cut is chance.)
        let output = allotment(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)) && said.lines().count() <= 2, "{words:?} {output:?}");
        assert!(said.contains("cut short") || said.contains("truncated"), "{words:?} {output:?}");
        until("whole again", || allotment(&["stat", &pid, "vmstat"]).status.success());
    }
    let file = format!("{}-{pid}", watched.file().to_str().unwrap().rsplit_once('-').unwrap().0);
    child.kill().unwrap();
    child.wait().unwrap();
    let _ = fs::remove_file(file);
}

/// Nobody is waited for, nothing else than files is opened.
#[test]
fn what_is_no_file_is_not_opened() {
    let Some(watched) = Watched::start(&[]) else { return };
    let scratch = Scratch::new("kinds");
    let fifo = scratch.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for name in [fifo.to_str().unwrap(), "/dev/null", "/proc/kmsg", "/"] {
        fails(&["stat", name], 1, &["not a regular file"]);
        fails(&["profile", name], 1, &["not a regular file"]);
    }
    // In the place of a heap's file.
    let heap = PathBuf::from(format!("{}.heap", watched.file().display()));
    assert!(Command::new("mkfifo").arg(&heap).status().unwrap().success());
    watched.fails("profile", &[], 1, &["no heap profile"]);
    fs::remove_file(&heap).unwrap();
}

/// Files of other pid namespaces: of one that has ended they go, of one that lives they stay.
#[test]
fn ended_namespaces_are_swept_and_living_ones_are_not() {
    let test = "ended_namespaces_are_swept_and_living_ones_are_not";
    let Some(program) = program("crowd.c") else { return };
    let words = ["--fork", "--pid", "--kill-child", "--mount-proc", ALLOTMENT, "run", "--", &program, "wait"];
    let mut command = Command::new("unshare");
    let mut child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let Some(inner) = line.trim().strip_prefix("ok ").map(str::to_owned) else {
        let _ = child.wait();
        return skip(test, "no pid namespace can be made here");
    };
    let files = || {
        let names = fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.path());
        let end = format!("-{inner}");
        names.filter(|path| path.to_str().is_some_and(|name| name.ends_with(&end))).collect::<Vec<_>>()
    };
    done(&["stat"]);
    let before = files();
    assert!(!before.is_empty(), "swept while it lived");
    let _ = child.kill();
    let _ = child.wait();
    until("swept", || {
        done(&["stat"]);
        before.iter().any(|path| !path.exists())
    });
}
