//! What works under glibc works under Allotment: each file of `tests/attack` is a program that once broke it, or that
//! tries to, and one test (`cargo test --test attack NAME`).
//!
//! A program is run under glibc, then under the preloaded library with sequences, then by `allotment run`, where it
//! publishes; and on the fallback, where that is asked for (`ALLOTMENT_TEST_MODES=unregistered`: only there). Each time it must end in the same way, by the same exit status or signal, with the same
//! standard output, within a minute, and without a line of ours on standard error. So it prints only what must be equal.
//! If it cannot run here it says `skipped: why` and ends with 77.
//!
//! A file is C, C++ or Rust (by `rustc` alone) and opens with comment lines, all but the first optional:
//!
//! ```text
//! // about: one line: what broke, and why
//! // args: 60 100000     one run for each such line; one without arguments if there is none
//! // long: 600 100000    likewise, with `ALLOTMENT_TEST_LONG=1` only
//! // conf: KEY=VALUE,... for ALLOTMENT_CONF
//! // limit: -v 60000     for the shell's `ulimit` before the program starts; repeatable
//! // library             the file is first built with -DLIB into a shared library, linked before all others
//! // flags: -ldl         more for the compiler
//! // root                needs root, is skipped otherwise
//! // own-errors          lines of ours on standard error are expected
//! // alone               not beside many others: it measures memory or takes many processes
//! // known: why          broken and not yet mended: the test passes while it fails, and fails when it passes
//! // rare: why           likewise, but it does not always fail
//! ```
//!
//! `ALLOTMENT_TEST_LONG=1` runs each 20 times, on the fallback, too.

mod common;
use common::{ALLOTMENT, SKIPPED, Scratch};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// When a program counts as hung. One that is known to hang need not take so long.
const HANG: Duration = Duration::from_secs(60);
const KNOWN_HANG: Duration = Duration::from_secs(4);

/// One file, by its header.
#[derive(Debug, Default)]
struct Attack {
    source: PathBuf,
    about: String,
    args: Vec<String>,
    long: Vec<String>,
    conf: String,
    limits: Vec<String>,
    flags: Vec<String>,
    library: bool,
    root: bool,
    own_errors: bool,
    alone: bool,
    known: Option<Known>,
}

/// Why a program that is not yet mended fails.
#[derive(Debug)]
struct Known {
    reason: String,
    always: bool,
}

/// How a program is started.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Glibc,
    Sequences,
    Fallback,
    Run,
}

impl Way {
    /// Those to compare with glibc.
    fn all() -> &'static [Self] {
        if common::only_unregistered() {
            &[Self::Fallback]
        } else if common::long() {
            &[Self::Sequences, Self::Fallback, Self::Run]
        } else {
            &[Self::Sequences, Self::Run]
        }
    }
}

/// How it ended.
struct End {
    status: Option<ExitStatus>,
    out: String,
    err: String,
    took: Duration,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most of them wait for something most of the time.
    let threads = std::thread::available_parallelism().map_or(6, |count| count.get() * 3);
    let threads = *arguments.test_threads.get_or_insert(threads);
    let beside: &'static Beside = Box::leak(Box::new(Beside::new(threads)));
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attack");
    let mut attacks: Vec<Attack> =
        fs::read_dir(directory).unwrap().map(|entry| Attack::read(entry.unwrap().path())).collect();
    // (Those first that wait longest, and for each other.)
    attacks.sort_by(|one, other| (!one.alone, &one.source).cmp(&(!other.alone, &other.source)));
    let trials = attacks.into_iter().map(|attack| {
        let kind = attack.known.as_ref().map_or("", |known| if known.always { "known" } else { "rare" });
        Trial::test(attack.name(), move || beside.run(attack.alone, || attack.test())).with_kind(kind)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// Lets so many programs run side by side, of which one that is `alone` takes half the room.
struct Beside {
    room: Mutex<usize>,
    changed: Condvar,
    half: usize,
}

impl Beside {
    fn new(threads: usize) -> Self {
        Self { room: Mutex::new(threads), changed: Condvar::new(), half: threads.div_ceil(2) }
    }
    fn run<T>(&self, alone: bool, body: impl FnOnce() -> T) -> T {
        let wanted = if alone { self.half } else { 1 };
        let room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        *self.changed.wait_while(room, |room| *room < wanted).unwrap_or_else(PoisonError::into_inner) -= wanted;
        let done = body();
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) += wanted;
        self.changed.notify_all();
        done
    }
}

impl Attack {
    fn read(source: PathBuf) -> Self {
        let text = fs::read_to_string(&source).unwrap();
        let mut attack = Self { source, ..Self::default() };
        for line in text.lines().map_while(|line| line.strip_prefix("// ")) {
            let (word, rest) = line.split_once(": ").unwrap_or((line, ""));
            let known = |always| Some(Known { reason: rest.to_owned(), always });
            match word {
                "about" => rest.clone_into(&mut attack.about),
                "args" => attack.args.push(rest.to_owned()),
                "long" => attack.long.push(rest.to_owned()),
                "conf" => rest.clone_into(&mut attack.conf),
                "limit" => attack.limits.push(rest.to_owned()),
                "flags" => attack.flags.extend(rest.split_whitespace().map(str::to_owned)),
                "library" => attack.library = true,
                "root" => attack.root = true,
                "own-errors" => attack.own_errors = true,
                "alone" => attack.alone = true,
                "known" => attack.known = known(true),
                "rare" => attack.known = known(false),
                _ => panic!("{}: what is `// {line}`?", attack.source.display()),
            }
        }
        assert!(!attack.about.is_empty(), "{}: no line `// about: `", attack.source.display());
        attack
    }
    fn name(&self) -> String {
        self.source.file_stem().unwrap().to_str().unwrap().to_owned()
    }
    fn test(&self) -> Result<(), Failed> {
        let rounds = if common::long() { 20 } else { 1 };
        let said = (0..rounds).try_for_each(|_| self.compare());
        match (said, &self.known) {
            (Err(why), None) => Err(format!("{}\n{why}", self.about).into()),
            (Err(why), Some(known)) => {
                let first = why.lines().next().unwrap_or_default();
                common::skip(&self.name(), &format!("not yet mended: {} ({first})", known.reason));
                Ok(())
            }
            (Ok(()), Some(known)) if known.always => Err("it passes now: remove its line `// known: `".into()),
            (Ok(()), _) => Ok(()),
        }
    }
    /// Every run of it, until one ends as none under glibc.
    fn compare(&self) -> Result<(), String> {
        let name = self.name();
        // SAFETY: this call has no conditions.
        #[allow(unsafe_code, reason = "the one question that std does not answer")]
        if self.root && unsafe { libc::geteuid() } != 0 {
            common::skip(&name, "needs root");
            return Ok(());
        }
        let scratch = Scratch::new(&name);
        let Some(program) = self.compile(&scratch) else { return Ok(()) };
        let none = [String::new()];
        let long = if common::long() { &*self.long } else { &[] };
        let args = if self.args.is_empty() { &none } else { &*self.args };
        for args in args.iter().chain(long) {
            let plain = self.run(Way::Glibc, &program, args, &scratch, HANG);
            if plain.status.and_then(|status| status.code()) == Some(SKIPPED) {
                common::skip(&name, plain.out.trim().trim_start_matches("skipped: "));
                continue;
            }
            let hang = if self.known.is_some() { KNOWN_HANG } else { HANG }.max(plain.took * 4);
            assert!(plain.status.is_some(), "{name} {args} hangs under glibc\n{}", plain.err);
            for &way in Way::all() {
                let end = self.run(way, &program, args, &scratch, hang);
                let what = |what| {
                    format!("[{way:?}] {name} {args}: {what}\n--- stderr\n{}--- under glibc\n{}", end.err, plain.err)
                };
                let Some(status) = end.status else { return Err(what("hangs".to_owned())) };
                let glibc = plain.status.unwrap();
                if (status.code(), status.signal()) != (glibc.code(), glibc.signal()) {
                    return Err(what(format!("{status}, not {glibc}; it says {:?}", end.out)));
                }
                if end.out != plain.out {
                    return Err(what(format!("says {:?}, not {:?}", end.out, plain.out)));
                }
                let ours = end.err.lines().find(|line| line.starts_with("allotment: "));
                if let (Some(line), false) = (ours, self.own_errors) {
                    return Err(what(format!("{line:?} on standard error")));
                }
            }
        }
        Ok(())
    }
    /// The program, or nothing if there is no compiler for it.
    fn compile(&self, scratch: &Scratch) -> Option<PathBuf> {
        let (compiler, package, flags): (_, _, &[&str]) = match self.source.extension()?.to_str()? {
            "c" => ("gcc", "gcc", &["-O2", "-g", "-w", "-fno-builtin", "-pthread"]),
            "cpp" => ("g++", "g++", &["-O2", "-g", "-w", "-fno-builtin", "-pthread"]),
            "rs" => ("rustc", "rustc", &["-O", "-g", "--edition=2024"]),
            other => panic!("{}: no compiler for {other}", self.source.display()),
        };
        common::need(&self.name(), compiler, package)?;
        let directory = common::scratch_root().join("attack");
        fs::create_dir_all(&directory).unwrap();
        let own: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let build = |name: String, more: &[&str]| {
            let (built, output) = (directory.join(&name), scratch.join(&name));
            common::build(compiler, &self.source, &built, &[flags, more, &own].concat());
            // Programs look for it where they run.
            if !output.exists() {
                fs::hard_link(built, &output).unwrap();
            }
            output
        };
        let mut linked = vec![];
        let library;
        if self.library {
            library = build(format!("lib{}.so", self.name()), &["-shared", "-fPIC", "-DLIB"]);
            linked = vec![library.to_str()?, "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"];
        }
        Some(build(self.name(), &linked))
    }
    fn run(&self, way: Way, program: &Path, args: &str, scratch: &Scratch, hang: Duration) -> End {
        // The shell sets the limits; what is preloaded begins with the program.
        let mut script = String::from("ulimit -c 0; ");
        self.limits.iter().for_each(|limit| script += &format!("ulimit {limit} || exit 125; "));
        match way {
            Way::Glibc => script += r#"exec "$@""#,
            Way::Sequences => script += &format!(r#"LD_PRELOAD={} exec "$@""#, library()),
            Way::Fallback => {
                script += &format!(r#"GLIBC_TUNABLES=glibc.pthread.rseq=0 LD_PRELOAD={} exec "$@""#, library());
            }
            Way::Run => script += &format!(r#"exec {ALLOTMENT} run -- "$@""#),
        }
        let file = |name| File::create(scratch.join(name)).unwrap();
        let text = |name| String::from_utf8_lossy(&fs::read(scratch.join(name)).unwrap()).into_owned();
        let mut command = Command::new("bash");
        command.args(["-c", &script, "attack"]).arg(program).args(args.split_whitespace());
        command.env("LC_ALL", "C").env_remove("LD_PRELOAD").env("ALLOTMENT_CONF", &self.conf);
        command.current_dir(scratch.path()).stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        let begin = Instant::now();
        let mut child = command.process_group(0).spawn().unwrap();
        let mut stacks = String::new();
        let status = loop {
            let status = child.try_wait().unwrap();
            if status.is_some() {
                break status;
            }
            if begin.elapsed() > hang {
                // Those of a known one are known, too.
                if self.known.is_none() {
                    stacks = common::stacks(child.id());
                }
                break None;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let took = begin.elapsed();
        // And what it left behind.
        common::stop_group(child.id());
        let _ = child.wait();
        End { status, out: text("out"), err: text("err") + &stacks, took }
    }
}

/// The library that the command preloads.
fn library() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let said = Command::new(ALLOTMENT).args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]).output().unwrap();
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    })
}
