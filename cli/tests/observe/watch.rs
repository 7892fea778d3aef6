//! `stat --watch`.

use super::watched::{Watched, signal};
use crate::common::ALLOTMENT;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `--watch` prints until the program ends, or a signal comes.
#[test]
fn watching_ends_with_the_program() {
    let Some(mut watched) = Watched::start(&[]) else { return };
    let watch = |words: &[&str]| {
        let mut command = Command::new(ALLOTMENT);
        command.args(["stat", &watched.pid.to_string(), "--watch", "0.1"]).args(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let counted = watch(&["vmstat", "--count", "3"]).wait_with_output().unwrap();
    let text = String::from_utf8(counted.stdout).unwrap();
    assert!(counted.status.success());
    assert_eq!(text.lines().filter(|line| line.starts_with("--- process")).count(), 3, "{text}");
    assert_eq!(text.matches("\nalloc_slowpath ").count(), 3, "{text}");
    assert!(text.contains("/s\n"), "{text}");
    let lines = watch(&["--json", "vmstat", "--count", "2"]).wait_with_output().unwrap();
    let text = String::from_utf8(lines.stdout).unwrap();
    assert_eq!(text.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count(), 2, "{text}");
    let first = |child: &mut Child| {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    };
    let mut interrupted = watch(&["vmstat"]);
    first(&mut interrupted);
    signal(interrupted.id(), "INT");
    assert_eq!(interrupted.wait().unwrap().code(), Some(0));
    let mut last = watch(&["sets"]);
    let mut out = BufReader::new(last.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("--- process"), "{line}");
    let reader = std::thread::spawn(move || out.lines().map_while(Result::ok).count());
    writeln!(watched.input, "end").unwrap();
    watched.child.wait().unwrap();
    let output = last.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    reader.join().unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("has ended"), "{said}");
}

/// `--watch` ends with its reader, too: at the first print that nobody reads, quietly.
#[test]
fn watching_ends_with_its_reader() {
    let Some(watched) = Watched::start(&[]) else { return };
    let pid = watched.pid.to_string();
    for words in [&[][..], &["vmstat"], &["--json"], &["--json", "vmstat", "--no-ask"], &["slabinfo", "sets"]] {
        // One reader takes a line before it goes, one nothing.
        for lines in [1, 0] {
            let mut command = Command::new(ALLOTMENT);
            command.args(["stat", &pid, "--watch", "0.05"]).args(words);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut reader = BufReader::new(child.stdout.take().unwrap());
            for _ in 0..lines {
                reader.read_line(&mut String::new()).unwrap();
            }
            drop(reader);
            let begin = Instant::now();
            while child.try_wait().unwrap().is_none() {
                if begin.elapsed() > Duration::from_secs(60) {
                    let _ = child.kill();
                    panic!("{words:?}: it goes on without a reader");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""), "{words:?}");
        }
    }
}
