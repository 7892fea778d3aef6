//! # Tests against mutants
//!
//! Every test runs once with no mutant on, and says how long it takes and which mutants' places it reaches. Then each
//! mutant meets the tests that reach it, some at a time, until one fails, crashes or takes too long: those first that are
//! quick and reach little else.
//!
//! A mutant may do anything that its tests may: fill `/dev/shm`, send signals to all, stay. So tests run in process and
//! mount namespaces of their own, and go with them; where there are none to be had they run without.

use std::collections::HashMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// Bytes of the file in which places are recorded, as in `switch.rs`.
const REACHED_BYTES: usize = 1 << 16;
/// Tests take this many times as long as without a mutant, at most, and this much more.
const TIMES: u32 = 10;
const GRACE: Duration = Duration::from_secs(5);
/// The first tests that run together take about this long; those that follow as long as all before them.
const FIRST: Duration = Duration::from_millis(100);

/// A test, the time that it takes and the mutants that it reaches.
struct Test {
    name: String,
    time: Duration,
    reached: Vec<u32>,
}

/// How it went for a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Caught,
    /// A test took too long.
    TooLong,
    Survived,
    /// As far as there was time: some tests that reach it are left.
    SurvivedSoFar,
    NotReached,
}

/// The program of tests.
pub struct Tests {
    program: PathBuf,
    scratch: PathBuf,
    /// What stands before the program.
    sandbox: Vec<String>,
    jobs: usize,
    /// A mutant's tests take this long without it, at most.
    budget: Duration,
    /// In the order in which a mutant meets them.
    tests: Vec<Test>,
    /// For each mutant, places in `tests`.
    reaching: HashMap<u32, Vec<usize>>,
}

impl Tests {
    /// Runs all tests, each alone, without a mutant.
    pub fn record(program: &Path, scratch: &Path, jobs: usize, budget: Duration) -> Result<Self, String> {
        let mut all = Self {
            program: program.to_owned(),
            scratch: scratch.to_owned(),
            sandbox: sandbox(),
            jobs,
            budget,
            tests: Vec::new(),
            reaching: HashMap::new(),
        };
        let list =
            Command::new(program).args(["--list", "--format", "terse"]).output().map_err(|error| error.to_string())?;
        let list = String::from_utf8_lossy(&list.stdout);
        let names: Vec<_> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
        let tests = beside(jobs, names.len(), |index| all.record_one(names[index], index), |_, _| {});
        all.tests = tests.into_iter().collect::<Result<_, _>>()?;
        all.tests.sort_by_key(|test| test.time.as_micros() * test.reached.len() as u128);
        for (index, test) in all.tests.iter().enumerate() {
            for mutant in &test.reached {
                all.reaching.entry(*mutant).or_default().push(index);
            }
        }
        Ok(all)
    }

    fn record_one(&self, name: &str, index: usize) -> Result<Test, String> {
        let file = self.scratch.join(format!("reached.{index}"));
        let tell = |error: io::Error| format!("{}: {error}", file.display());
        fs::write(&file, vec![0; REACHED_BYTES]).map_err(tell)?;
        let begin = Instant::now();
        let passed = self.run(&[name], "MUTANTS_REACHED", &file.to_string_lossy(), Duration::from_secs(60));
        let time = begin.elapsed();
        let bytes = fs::read(&file).map_err(tell)?;
        fs::remove_file(&file).map_err(tell)?;
        if passed != Ok(true) {
            return Err(format!("{name} fails without a mutant"));
        }
        let reached = (0..).zip(bytes).filter(|(_, byte)| *byte != 0).map(|(mutant, _)| mutant).collect();
        Ok(Test { name: name.to_owned(), time, reached })
    }

    /// Tests, and the seconds that they take.
    pub fn count(&self) -> (usize, f64) {
        (self.tests.len(), self.tests.iter().map(|test| test.time.as_secs_f64()).sum())
    }

    /// Tries each mutant; `told` is called when one is done, with how many were.
    pub fn try_all(&self, mutants: &[u32], told: impl FnMut(usize, &(Fate, String))) -> Vec<(Fate, String)> {
        beside(self.jobs, mutants.len(), |index| self.try_one(mutants[index]), told)
    }

    /// How it goes for a mutant, and the tests that were running when it was caught.
    fn try_one(&self, mutant: u32) -> (Fate, String) {
        let Some(reaching) = self.reaching.get(&mutant) else { return (Fate::NotReached, String::new()) };
        let mut spent = Duration::ZERO;
        let mut left = &reaching[..];
        while !left.is_empty() {
            let mut time = Duration::ZERO;
            let mut count = 0;
            while count < left.len() && time < FIRST.max(spent) {
                let next = self.tests[left[count]].time;
                if spent + time > Duration::ZERO && spent + time + next > self.budget {
                    break;
                }
                time += next;
                count += 1;
            }
            if count == 0 {
                return (Fate::SurvivedSoFar, String::new());
            }
            let names: Vec<_> = left[..count].iter().map(|test| &*self.tests[*test].name).collect();
            match self.run(&names, "MUTANT", &mutant.to_string(), time) {
                Ok(true) => {}
                Ok(false) => return (Fate::Caught, names.join(" ")),
                Err(()) => return (Fate::TooLong, names.join(" ")),
            }
            spent += time;
            left = &left[count..];
        }
        (Fate::Survived, String::new())
    }

    /// Whether these tests pass, which take `time` without a mutant; an error if they take much longer.
    fn run(&self, names: &[&str], variable: &str, value: &str, time: Duration) -> Result<bool, ()> {
        let limit = time * TIMES + GRACE;
        let mut words = self.sandbox.iter().map(String::as_str);
        let mut command = match words.next() {
            Some(first) => Command::new(first),
            None => Command::new(&self.program),
        };
        command.args(words);
        if !self.sandbox.is_empty() {
            command.arg(&self.program);
        }
        let child = command
            .args(["--exact", "--test-threads=1"])
            .args(names)
            // The engine's own directory, where its tests are run by cargo.
            .current_dir(self.scratch.join("checkout/engine"))
            .env_remove("RUST_BACKTRACE")
            .env(variable, value)
            .env("PROCESSOR_SECONDS", (time * TIMES / 2 + GRACE / 2).as_secs().to_string())
            // Signals to a process group know no name space.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else { return Err(()) };
        wait(&mut child, limit)
    }
}

fn wait(child: &mut Child, limit: Duration) -> Result<bool, ()> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            // (SIGXCPU, of the program or as the sandbox's shell says it.)
            Ok(Some(status)) if status.signal() == Some(24) || status.code() == Some(128 + 24) => return Err(()),
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if begin.elapsed() < limit => thread::sleep(pause),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(());
            }
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Namespaces of processes and mounts, a `/dev/shm` with a directory for files whose names have the process's number (which is
/// the same in all), and a bound of processor time; nothing where that is refused.
fn sandbox() -> Vec<String> {
    // A spinning mutant is to be found by what it uses: what it waits for the machine is not its fault. The shell stays
    // process 1, for which signals are not what they are for others.
    let script = "mount -t tmpfs none /dev/shm && mkdir /dev/shm/tmp && export TMPDIR=/dev/shm/tmp && \
                  ulimit -t ${PROCESSOR_SECONDS:-60} && \"$@\"; exit $?";
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let flags = if is_root { "-pmf" } else { "-Urpmf" };
    let words = ["unshare", flags, "--mount-proc", "--kill-child", "sh", "-c", script, "sh"].map(str::to_owned);
    let works = Command::new(&words[0]).args(&words[1..]).arg("true").output().is_ok_and(|done| done.status.success());
    if works { words.to_vec() } else { Vec::new() }
}

/// Runs `work` for each index below `count`, `jobs` at a time; `told` hears of each that is done, in that order.
fn beside<T: Send>(
    jobs: usize,
    count: usize,
    work: impl Fn(usize) -> T + Sync,
    mut told: impl FnMut(usize, &T),
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let mut done = Vec::new();
    let (tell, hear) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs {
            let tell = tell.clone();
            let (next, work) = (&next, &work);
            scope.spawn(move || {
                // Relaxed: only who takes which index.
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && index < count
                {
                    let _ = tell.send((index, work(index)));
                }
            });
        }
        drop(tell);
        for (index, value) in hear {
            told(index, &value);
            done.push((index, value));
        }
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, value)| value).collect()
}
