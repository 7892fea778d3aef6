//! What the integration tests share: C programs built once, programs run to
//! their end under every mode, and a word to the reader where a test is skipped.
//!
//! Environment:
//! - `ALLOTMENT_TEST_MODES`: the modes to run, by name and comma (`plain` is
//!   glibc without Allotment, to check the tests themselves);
//! - `ALLOTMENT_TEST_LONG=1`: the long versions.
//!
//! No test asserts a time. A program that has not ended after five minutes (long: thirty) counts
//! as hung; its threads' stacks are printed if a debugger is here.
#![allow(dead_code)] // `attack` uses a part
#![allow(unsafe_code)] // sigaction, before `main`

pub mod code;
pub mod installed;
pub mod trace;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The command under test.
pub const ALLOTMENT: &str = env!("CARGO_BIN_EXE_allotment");
/// What a C program says by its exit status when it cannot run here.
pub const SKIPPED: i32 = 77;
/// When a program counts as hung.
fn hang() -> Duration {
    Duration::from_secs(if long() { 1800 } else { 300 })
}

/// Programs begin with the signals that a terminal gives them, whoever runs the tests: in the background of a script
/// SIGINT and SIGQUIT are ignored, under `nohup` SIGHUP, and that is inherited. Handlers are not: with one that does
/// nothing the tests themselves go on ignoring the signal, and whatever they start does not.
extern "C" fn ordinary_signals() {
    extern "C" fn nothing(_: libc::c_int) {}
    for signal in (1..=31).filter(|&signal| signal != libc::SIGPIPE) {
        // SAFETY: all-zero bytes are a valid sigaction; the handler does nothing. (SIGPIPE is Rust's own.)
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN {
                action.sa_sigaction = nothing as *const () as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static ORDINARY_SIGNALS: extern "C" fn() = ordinary_signals;

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Without Allotment.
    Plain,
    /// As it comes.
    Auto,
    /// The knob `mode=fallback`.
    Fallback,
    /// glibc registers no rseq area.
    Unregistered,
    /// Sets by CPU number.
    Cpu,
    /// Two objects in a sheaf and nothing kept: every slow path, all the time.
    Tiny,
    /// A sample of the heap profile every 2 KiB.
    Sampled,
}

impl Mode {
    const ALL: [(&'static str, Self); 7] = [
        ("plain", Self::Plain),
        ("auto", Self::Auto),
        ("fallback", Self::Fallback),
        ("unregistered", Self::Unregistered),
        ("cpu", Self::Cpu),
        ("tiny", Self::Tiny),
        ("sampled", Self::Sampled),
    ];
    /// As it is written.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
    /// The value of the knob `mode` for it.
    pub fn knob(self) -> &'static str {
        if self == Self::Fallback { "fallback" } else { "auto" }
    }
    fn knobs(self) -> &'static [&'static str] {
        match self {
            Self::Plain | Self::Auto | Self::Unregistered => &[],
            Self::Fallback => &["mode=fallback"],
            Self::Cpu => &["index=cpu"],
            Self::Sampled => &["profile_bytes=2K"],
            Self::Tiny => &[
                "sheaf_objects=2",
                "cache_floor=0",
                "lazy_floor=0",
                "lazy_ceiling=0",
                "huge_bytes=1M",
                "move_bytes=64K",
                "move_limit=4",
            ],
        }
    }
}

/// The modes asked for in the environment, or else `modes`. The fallback is a run of its own (`.ci/run unregistered`):
/// here it is left out of what runs with sequences as well, unless the long versions are asked for.
pub fn modes(modes: &[Mode]) -> Vec<Mode> {
    match std::env::var("ALLOTMENT_TEST_MODES") {
        Err(_) => {
            let locked = |mode: &Mode| matches!(mode, Mode::Fallback | Mode::Unregistered);
            let here = |mode: &Mode| long() || !locked(mode) || modes.iter().all(locked);
            modes.iter().copied().filter(here).collect()
        }
        Ok(names) => names
            .split(',')
            .map(|name| Mode::ALL.iter().find(|mode| mode.0 == name).unwrap_or_else(|| panic!("no mode {name}")).1)
            .collect(),
    }
}

/// Whether this run is the one of the fallback.
pub fn only_unregistered() -> bool {
    std::env::var("ALLOTMENT_TEST_MODES").is_ok_and(|names| names == Mode::Unregistered.name())
}

/// The two modes that a user can meet.
pub const BOTH: &[Mode] = &[Mode::Auto, Mode::Fallback];
/// Every one.
pub const EVERY: &[Mode] = &[Mode::Auto, Mode::Fallback, Mode::Unregistered, Mode::Cpu, Mode::Tiny];

/// Whether the long versions are asked for.
pub fn long() -> bool {
    std::env::var_os("ALLOTMENT_TEST_LONG").is_some_and(|value| value != "0")
}

/// Whether Allotment is in the way at all.
pub fn preloaded() -> bool {
    std::env::var("ALLOTMENT_TEST_MODES").map_or(true, |names| names != "plain")
}

/// Says so past the test harness's capture: a skip must be seen.
pub fn skip(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// The first of `names` on the path.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// The program `name`, or a skip that names the Debian package.
pub fn need(test: &str, name: &str, package: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        skip(test, &format!("no {name} here (Debian package {package})"));
    }
    found
}

/// A directory of this test's own, empty, gone at the end unless the test failed.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let path = scratch_root().join(format!("{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

pub fn scratch_root() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(&path).unwrap();
    path
}

/// One run of a program.
#[derive(Clone, Debug)]
pub struct Program {
    mode: Mode,
    words: Vec<String>,
    environment: BTreeMap<String, String>,
    directory: Option<PathBuf>,
    input: Vec<u8>,
    knobs: Vec<String>,
    stats: bool,
    leaks: bool,
}

/// How it ended.
#[derive(Debug)]
pub struct Done {
    pub what: String,
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
    pub stats: Option<Value>,
}

impl Program {
    pub fn new(mode: Mode, words: &[&str]) -> Self {
        Self {
            mode,
            words: words.iter().map(|&word| word.to_owned()).collect(),
            environment: BTreeMap::new(),
            directory: None,
            input: Vec::new(),
            knobs: Vec::new(),
            stats: true,
            leaks: false,
        }
    }
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }
    pub fn knob(mut self, knob: &str) -> Self {
        self.knobs.push(knob.to_owned());
        self
    }
    pub fn within(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }
    pub fn input(mut self, bytes: &[u8]) -> Self {
        self.input = bytes.to_vec();
        self
    }
    /// With what was still in use at the end, on standard error (and without statistics).
    pub fn leaks(mut self) -> Self {
        (self.stats, self.leaks) = (false, true);
        self
    }
    pub fn without_stats(mut self) -> Self {
        self.stats = false;
        self
    }
    fn command(&self, stats: &Path) -> Command {
        let mut command;
        if self.mode == Mode::Plain {
            command = Command::new(&self.words[0]);
            command.args(&self.words[1..]);
        } else {
            command = Command::new(ALLOTMENT);
            command.arg("run");
            if self.stats {
                command.arg(format!("--stats={}", stats.display()));
            }
            if self.leaks {
                command.arg("--leaks");
            }
            for knob in self.mode.knobs() {
                command.args(["--set", knob]);
            }
            for knob in &self.knobs {
                command.args(["--set", knob]);
            }
            command.arg("--").args(&self.words);
        }
        if self.mode == Mode::Unregistered {
            command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
        }
        command.env("LC_ALL", "C").envs(&self.environment);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }
    /// Starts it for a caller that talks to it; its output goes to `output`.
    pub fn start(&self, output: &Path, stats: &Path) -> std::process::Child {
        let file = File::create(output).unwrap();
        let mut command = self.command(stats);
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        command.process_group(0).spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.words))
    }
    /// Runs it to its end, whatever end that is.
    pub fn run(&self) -> Done {
        let scratch = Scratch::new("run");
        let stats = scratch.join("stats.json");
        let file = |name: &str| {
            File::options().read(true).write(true).create(true).truncate(true).open(scratch.join(name)).unwrap()
        };
        let (mut input, mut out, mut err) = (file("in"), file("out"), file("err"));
        input.write_all(&self.input).unwrap();
        input.rewind().unwrap();
        let mut command = self.command(&stats);
        command.stdin(input).stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap()).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.words));
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > hang() {
                let stacks = stacks(child.id());
                stop_group(child.id());
                let _ = child.wait();
                panic!("{} hangs\n{stacks}\n{}", self.what(), text(&mut err));
            }
            std::thread::sleep(Duration::from_millis(if begin.elapsed().as_millis() < 100 { 1 } else { 10 }));
        };
        let stats = fs::read(stats).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Done { what: self.what(), status, out: text(&mut out), err: text(&mut err), stats }
    }
    fn what(&self) -> String {
        format!("[{}] {} {}", self.mode.name(), self.words.join(" "), self.knobs.join(" "))
    }
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Kills a child that was started in a process group of its own, and what it started.
pub fn stop_group(id: u32) {
    let _ = Command::new("kill").args(["-KILL", "--", &format!("-{id}")]).stderr(Stdio::null()).status();
}

/// The stacks of a process's descendants, as far as a debugger can tell.
pub fn stacks(id: u32) -> String {
    let mut all = String::new();
    let mut todo = vec![id];
    while let Some(id) = todo.pop() {
        for task in fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            todo.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        all += &format!("process {id} {name}");
        let arguments = ["-p", &id.to_string(), "-batch", "-ex", "thread apply all bt 16"];
        if let Ok(output) = Command::new("gdb").args(arguments).output() {
            all += &String::from_utf8_lossy(&output.stdout);
        }
    }
    all
}

impl Done {
    /// It ended with this exit status.
    #[track_caller]
    pub fn ended(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{}\nended with {}\n{}", self.what, self.status, self.tails());
        self
    }
    /// It was ended by this signal.
    #[track_caller]
    pub fn killed(self, signal: i32) -> Self {
        assert_eq!(self.status.signal(), Some(signal), "{}\nended with {}\n{}", self.what, self.status, self.tails());
        self
    }
    /// It passed, or said why it cannot run here.
    #[track_caller]
    pub fn passed(self) -> Self {
        for line in self.out.lines().filter(|line| line.starts_with("skipped: ")) {
            skip(&self.what, &line[9..]);
        }
        if self.status.code() == Some(SKIPPED) {
            return self;
        }
        self.ended(0)
    }
    /// Standard error has a line with all of these words.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        let said = self.err.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(said, "{}\nno line with {words:?}\n{}", self.what, self.tails());
        self
    }
    /// A number of the statistics, by JSON pointer.
    #[track_caller]
    pub fn number(&self, pointer: &str) -> u64 {
        let stats = self.stats.as_ref().unwrap_or_else(|| panic!("{}: no statistics\n{}", self.what, self.tails()));
        let value = stats.pointer(pointer).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("{}: no number {pointer} in {stats}", self.what))
    }
    /// A word of the statistics.
    #[track_caller]
    pub fn word(&self, pointer: &str) -> &str {
        let stats = self.stats.as_ref().unwrap_or_else(|| panic!("{}: no statistics\n{}", self.what, self.tails()));
        let value = stats.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_else(|| panic!("{}: no word {pointer} in {stats}", self.what))
    }
    /// The preload took: at least so many allocations are in the statistics.
    #[track_caller]
    pub fn took(self, mode: Mode, allocs: u64) -> Self {
        if mode != Mode::Plain {
            let taken = self.number("/operations/allocs") + self.number("/events/area_alloc");
            assert!(taken >= allocs, "{}: {taken} allocations, not {allocs}\n{}", self.what, self.tails());
            let bad = self.number("/events/bad_free");
            assert_eq!(bad, 0, "{}: bad frees\n{}", self.what, self.tails());
        }
        self
    }
    fn tails(&self) -> String {
        format!("--- stdout\n{}--- stderr\n{}", tail(&self.out), tail(&self.err))
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].iter().map(|line| format!("{line}\n")).collect()
}

/// Copies a program that is started where it is then. (By a process of its own: what this one has open to write, a child that
/// another test forks at that moment has open, too, and cannot be started until the child runs its own program.)
pub fn copy_program(from: impl AsRef<Path>, to: &Path) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} is not copied", from.as_ref().display());
}

/// A file, and those that it includes by name.
fn with_included(source: &Path) -> String {
    let text = fs::read_to_string(source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
    let names = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
    let included: String = names.map(|name| with_included(&source.with_file_name(name))).collect();
    text + &included
}

/// Calls the compiler, unless `output` is there already, of the same words and files. What it was made of stands beside it.
pub fn build(compiler: &str, source: &Path, output: &Path, words: &[&str]) {
    let of = format!("{compiler} {words:?}\n{}", with_included(source));
    let made_of = output.with_extension("made-of");
    if output.exists() && fs::read_to_string(&made_of).is_ok_and(|text| text == of) {
        return;
    }
    // Another run of the tests may be about: the name appears when the file is whole.
    let unfinished = output.with_extension(std::process::id().to_string());
    let done = Command::new(compiler).arg(source).arg("-o").arg(&unfinished).args(words).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let _ = fs::remove_file(&made_of);
    fs::rename(&unfinished, output).unwrap();
    fs::write(made_of, of).unwrap();
}

/// Builds `cli/tests/c/NAME`; `extra` goes to the compiler.
pub fn compile(name: &str, output: &str, extra: &[&str]) -> Option<PathBuf> {
    static TURN: Mutex<()> = Mutex::new(());
    let (compiler, package) = if name.ends_with("pp") { ("g++", "g++") } else { ("gcc", "gcc") };
    need(name, compiler, package)?;
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name);
    let directory = scratch_root().join("c");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join(output);
    let libraries = format!("-L{}", directory.display());
    let words = ["-O1", "-g", "-fno-builtin", "-w", "-pthread", &libraries, "-Wl,-rpath,$ORIGIN"];
    build(compiler, &source, &path, &[&words, extra].concat());
    Some(path)
}

/// A C test program; those that need the early library get it.
pub fn program(name: &str) -> Option<String> {
    let early = matches!(name, "fork.c" | "life.c");
    if early {
        compile("early.c", "libearly.so", &["-shared", "-fPIC"])?;
    }
    let output = name.split('.').next().unwrap_or(name);
    let extra: &[&str] = match name {
        _ if early => &["-learly"],
        // The loader's own work at the first call of a function would be measured.
        "stack.c" => &["-Wl,-z,now"],
        _ => &[],
    };
    Some(compile(name, output, extra)?.to_str()?.to_owned())
}
