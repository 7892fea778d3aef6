//! Limits of what the heap may have: `hard_limit` and `soft_limit`, as numbers and as the memory cgroup's, under C, C++
//! and Python.

use crate::common::{ALLOTMENT, BOTH, EVERY, Mode, Program, compile, find, modes, need, program, skip};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Blocks of every size meet the limit, and nothing that there is gets lost.
#[test]
fn hard_limit_is_kept_and_refuses_with_enomem() {
    let Some(limits) = program("limits.c") else { return };
    for mode in modes(EVERY).into_iter().filter(|&mode| mode != Mode::Plain) {
        let program = Program::new(mode, &[&limits, "bounded"]).set("HARD_MIB", "64").knob("hard_limit=64M");
        let done = program.run().passed().took(mode, 1000);
        assert!(done.number("/events/limit_refused") > 10_000);
    }
}

#[test]
fn hard_limit_met_by_threads() {
    let Some(limits) = program("limits.c") else { return };
    for mode in modes(EVERY).into_iter().filter(|&mode| mode != Mode::Plain) {
        let program = Program::new(mode, &[&limits, "bounded_threads"]).set("HARD_MIB", "96").knob("hard_limit=96M");
        let done = program.run().passed().took(mode, 1000);
        assert!(done.number("/events/limit_refused") > 0);
    }
}

#[test]
fn new_throws_at_the_hard_limit() {
    let Some(bounded) = compile("bounded.cpp", "bounded", &["-std=c++17"]) else { return };
    for mode in modes(BOTH).into_iter().filter(|&mode| mode != Mode::Plain) {
        let done = Program::new(mode, &[bounded.to_str().unwrap()]).knob("hard_limit=64M").run().ended(0);
        assert!(done.number("/events/limit_refused") > 0);
    }
}

/// Without a limit nothing is refused, and the same sums go on.
#[test]
fn python_raises_memory_error_and_goes_on() {
    let Some(python) = find("python3.11").or_else(|| need("python_raises_memory_error", "python3", "python3")) else {
        return;
    };
    let script = "
def take(kept, size):
    reserve = [bytearray(b'y' * (16 << 20))]
    try:
        for _ in range((512 << 20) // size):
            kept.append(bytearray(b'x') * size)
    except MemoryError:
        reserve.clear()
        return True
    return False
refused = 0
for size in 50, 1000, 100_000, 5_000_000:
    kept = [bytearray(b'x' * size)]
    refused += take(kept, size)
    total = sum(map(len, kept))
    assert all(len(some) == size and some.count(b'x') == size for some in kept[::97])
    del kept
    text = ','.join(map(str, range(100_000)))
    assert sum(map(int, text.split(','))) == 4999950000
    print(size, total >> 20)
print('refused', refused)
";
    let python = python.to_str().unwrap();
    for mode in modes(BOTH).into_iter().filter(|&mode| mode != Mode::Plain) {
        let run = |knob: &str| {
            let program = Program::new(mode, &[python, "-c", script]).set("PYTHONMALLOC", "malloc");
            program.knob(knob).run().ended(0)
        };
        let done = run("hard_limit=128M");
        assert!(done.out.ends_with("refused 4\n"), "{}", done.out);
        let done = run("hard_limit=none");
        assert!(done.out.ends_with("refused 0\n"), "{}", done.out);
    }
}

/// A soft limit refuses nothing, but keeps what is free away.
#[test]
fn soft_limit_keeps_free_memory_away() {
    let Some(hold) = program("hold.c") else { return };
    for mode in modes(BOTH).into_iter().filter(|&mode| mode != Mode::Plain) {
        let run = |limit: &str| {
            let knobs = ["lazy_floor=64M", "lazy_ceiling=64M", "idle_seconds=0", limit];
            knobs.iter().fold(Program::new(mode, &[&hold, "numbers"]), |run, knob| run.knob(knob)).run().ended(0)
        };
        // It holds 10 MiB of areas, and has freed 9 MiB more.
        assert!(run("soft_limit=none").number("/memory/lazy") >= 9 * MIB);
        let done = run("soft_limit=11M");
        assert!(done.number("/memory/lazy") < MIB && done.number("/memory/in_use") >= 10 * MIB);
        assert!(done.number("/events/soft_limit") > 0 && done.number("/events/limit_refused") == 0);
    }
}

/// A directory of the memory controller, version 1 or 2, that is gone at the end.
struct Group(PathBuf, &'static str);

impl Group {
    /// `None` where none can be made.
    fn new(test: &str, bytes: u64) -> Option<Self> {
        for (root, file) in [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")] {
            let path = PathBuf::from(format!("{root}/allotment-{test}-{}", std::process::id()));
            if fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Self(path, file);
            if fs::write(group.0.join(group.1), bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        skip(test, "no memory cgroup can be made here (version 1 as root, or version 2 delegated)");
        None
    }
    /// A command in it.
    fn command(&self, knobs: &[&str], words: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$1\" && shift && exec \"$@\"", "sh"]).arg(self.0.join("cgroup.procs"));
        command.args([ALLOTMENT, "run"]);
        knobs.iter().for_each(|knob| _ = command.args(["--set", knob]));
        command.arg("--").args(words);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // (The last of its processes may still be on its way out.)
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// A program that asks for more than its cgroup has is told so, where it would be killed.
#[test]
fn hard_limit_of_the_cgroup_comes_before_the_killer() {
    let test = "hard_limit_of_the_cgroup";
    let (Some(limits), Some(group)) = (program("limits.c"), Group::new(test, 128 * MIB)) else { return };
    for mode in ["mode=auto", "mode=fallback"] {
        // Fifteen sixteenths of it.
        let mut command = group.command(&["hard_limit=cgroup", mode], &[&limits, "bounded"]);
        // (The program's own list of tiny blocks is the cgroup's, too.)
        let output = command.env("HARD_MIB", "120").env("LEAST", "3000").output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {error}", output.status);
    }
    // Alone it would be killed: the group has that limit.
    let output = group.command(&["hard_limit=none", "soft_limit=none"], &[&limits, "greedy"]).output().unwrap();
    assert!(!output.status.success(), "the group limits nothing");
}
