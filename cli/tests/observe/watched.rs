//! A program whose holdings are known, and what tests ask of the command.

use crate::common::{ALLOTMENT, program};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;

/// `watched.c`, running.
pub struct Watched {
    pub child: Child,
    pub input: ChildStdin,
    pub output: BufReader<ChildStdout>,
    pub pid: u32,
}

impl Watched {
    /// With these words before `--` of `allotment run`.
    pub fn start(words: &[&str]) -> Option<Self> {
        Self::start_by(Command::new(ALLOTMENT), words)
    }

    pub fn start_by(mut command: Command, words: &[&str]) -> Option<Self> {
        let watched = program("watched.c")?;
        // What is lazily freed stays: the tests count it.
        command.args(["run", "--set", "lazy_floor=64M", "--set", "lazy_ceiling=64M", "--set", "idle_seconds=3600"]);
        command.args(words).args(["--", &watched]).env("LC_ALL", "C");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut watched = Self { child, input, output, pid: 0 };
        watched.pid = watched.line("ready");
        Some(watched)
    }

    /// The number behind a word of the next line.
    pub fn line(&mut self, word: &str) -> u32 {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let rest = line.trim_end().strip_prefix(word).unwrap_or_else(|| panic!("{line:?}, not {word}"));
        rest.trim().parse().unwrap_or(0)
    }

    /// Has it do something.
    pub fn tell(&mut self, line: &str) -> &mut Self {
        writeln!(self.input, "{line}").unwrap();
        self.line("done");
        self
    }

    pub fn file(&self) -> PathBuf {
        let link = fs::read_link(format!("/proc/{}/ns/pid", self.pid)).unwrap();
        let namespace: String = link.to_str().unwrap().chars().filter(char::is_ascii_digit).collect();
        PathBuf::from(format!("/dev/shm/allotment-{namespace}-{}", self.pid))
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid, name);
    }

    pub fn json(&self, words: &[&str]) -> Value {
        let pid = self.pid.to_string();
        let words: Vec<&str> = ["stat", pid.as_str(), "--json"].iter().chain(words).copied().collect();
        serde_json::from_str(&done(&words)).unwrap()
    }

    /// A command on it that must succeed; its standard output.
    pub fn done(&self, command: &str, words: &[&str]) -> String {
        let pid = self.pid.to_string();
        done(&[&[command, pid.as_str()], words].concat())
    }

    /// A command on it that must fail with this code and one line that has these words.
    #[track_caller]
    pub fn fails(&self, command: &str, words: &[&str], code: i32, said: &[&str]) {
        let pid = self.pid.to_string();
        fails(&[&[command, pid.as_str()], words].concat(), code, said);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // (One that never said "ready" has no number; 0 would be the whole group of the tests.)
        if self.pid != 0 {
            signal(self.pid, "KILL");
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal(pid: u32, name: &str) {
    assert!(pid > 1, "no process of ours");
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
}

pub fn allotment(words: &[&str]) -> Output {
    Command::new(ALLOTMENT).args(words).env("LC_ALL", "C").output().unwrap()
}

#[track_caller]
pub fn done(words: &[&str]) -> String {
    let output = allotment(words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?} ended with {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
pub fn fails(words: &[&str], code: i32, said: &[&str]) {
    let output = allotment(words);
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}\n{line}");
    assert!(said.iter().all(|word| line.contains(word)), "{words:?} says {line:?}, not {said:?}");
    assert_eq!(line.lines().count(), 1, "{line}");
}

/// Waits for something that will be so.
#[track_caller]
pub fn until(what: &str, is: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(120), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn number(value: &Value, pointer: &str) -> u64 {
    let found = value.pointer(pointer).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no number {pointer} in {value}"))
}

pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).unwrap_or_else(|| panic!("no list {pointer} in {value}"))
}

pub fn sum(values: &[Value], of: impl Fn(&Value) -> u64) -> u64 {
    values.iter().map(of).sum()
}

/// Sums over classes are the totals; times add up to their counts.
pub fn adds_up(all: &Value) {
    let slabs = list(all, "/slabinfo");
    let of = |name: &'static str| move |slab: &Value| number(slab, name);
    assert_eq!(
        sum(slabs, |slab| number(slab, "/active_objs") * number(slab, "/objsize")),
        number(all, "/memory/in_use_slab_bytes")
    );
    assert_eq!(sum(slabs, of("/active_objs")), number(all, "/memory/in_use_slab_objects"));
    assert_eq!(sum(slabs, of("/allocs")), number(all, "/operations/allocs"));
    assert_eq!(sum(slabs, of("/frees")), number(all, "/operations/frees"));
    assert_eq!(
        number(all, "/memory/in_use"),
        number(all, "/memory/in_use_slab_bytes") + number(all, "/memory/in_use_area_bytes")
    );
    for (name, latency) in all["latency"].as_object().unwrap() {
        assert_eq!(sum(list(latency, "/buckets"), of("/count")), number(latency, "/count"), "{name}");
    }
    for area in list(all, "/vmallocinfo/areas") {
        assert_eq!(number(area, "/bytes"), number(area, "/pages") * 4096);
    }
}

pub fn cached(all: &Value) -> u64 {
    sum(list(all, "/sets"), |set| number(set, "/bytes"))
}
