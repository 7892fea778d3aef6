//! # What a suite is made of
//!
//! ```text
//!   Suite ── cases ─► Case ─► Contender ── a run ─► Samples          a Sample: a Metric and its value
//!     │                          └─ in this process, a program, or a worker: this binary again
//!     └─ work ◄── bench-worker SUITE CASE:WHO ──────┘  which prints `sample METRIC VALUE` lines
//! ```
//! A suite is one constant [`Suite`], in a file of its own in `suites`, and a line in the table there. One whose runs are
//! workers has its cases in a table of [`Work`], which both sides read: the parent makes contenders of it
//! ([`super::worker`]), the worker finds there what it is to do ([`Job::find`]).

use super::peer::Peer;
use super::rows::Row;
use super::team::cpus;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// A suite.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// Makes its cases.
    pub cases: fn(&Setup) -> Vec<Case>,
    /// What its workers do, and what they may report.
    pub work: Option<(Body, &'static [Metric])>,
    /// Per cent of the operations in a quick run.
    pub quick: u64,
    /// A table of its own, below the one that all have.
    pub table: fn(&[Row]) -> String,
}

/// What a worker does: it prints its samples by [`super::worker::sample`].
pub type Body = fn(&Job) -> Result<(), String>;

impl Suite {
    /// One whose runs are in this process, or programs.
    pub const fn new(name: &'static str, about: &'static str, cases: fn(&Setup) -> Vec<Case>) -> Self {
        const fn nothing(_: &[Row]) -> String {
            String::new()
        }
        Self { name, about, cases, work: None, quick: 20, table: nothing }
    }
    /// One with workers.
    pub const fn of_workers(self, work: Body, metrics: &'static [Metric]) -> Self {
        Self { work: Some((work, metrics)), ..self }
    }
    /// So many per cent of the operations in a quick run.
    pub const fn quick(self, quick: u64) -> Self {
        Self { quick, ..self }
    }
    /// With a table of its own.
    pub const fn with_table(self, table: fn(&[Row]) -> String) -> Self {
        Self { table, ..self }
    }
    /// Per cent of the operations in a run: one that only warms up, a quick one, or a full one.
    pub const fn scale(&self, warm: bool, quick: bool) -> u64 {
        match (warm, quick) {
            (true, _) => 2,
            (_, true) => self.quick,
            _ => 100,
        }
    }
    /// Reads a worker's lines: `sample METRIC VALUE`.
    ///
    /// # Errors
    /// One line about what is none of this suite's.
    pub fn samples(&self, output: &str) -> Result<Vec<Sample>, String> {
        let metrics = self.work.map_or(&[][..], |(_, metrics)| metrics);
        let lines = output.lines().filter_map(|line| line.strip_prefix("sample "));
        let sample = |line: &str| {
            let (name, value) = line.split_once(' ').ok_or("no value")?;
            let metric = metrics.iter().find(|metric| metric.name == name);
            let metric = metric.ok_or_else(|| format!("{name} is no metric of suite {}", self.name))?;
            Ok(metric.is(value.parse().map_err(|_| format!("the worker said: {line}"))?))
        };
        let samples = lines.map(sample).collect::<Result<Vec<_>, String>>()?;
        if samples.is_empty() { Err("the worker gave no result".into()) } else { Ok(samples) }
    }
}

/// What cases are made from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Allocators, ours first.
    pub peers: Vec<Peer>,
    /// Fewer and shorter runs.
    pub quick: bool,
    /// This binary, for workers.
    pub program: PathBuf,
    /// `ALLOTMENT_CONF` for Allotment's runs.
    pub conf: Option<OsString>,
    /// A directory for files, gone at the end.
    pub scratch: PathBuf,
}

/// What is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Times, memory.
    Lower,
    /// Rates.
    Higher,
}

/// Something that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// What.
    pub name: &'static str,
    /// In what.
    pub unit: &'static str,
    /// What is better.
    pub better: Better,
}

/// A metric of which less is better.
pub const fn lower(name: &'static str, unit: &'static str) -> Metric {
    Metric { name, unit, better: Better::Lower }
}

/// One of which more is.
pub const fn higher(name: &'static str, unit: &'static str) -> Metric {
    Metric { name, unit, better: Better::Higher }
}

impl Metric {
    /// One number of one run.
    pub const fn is(self, value: f64) -> Sample {
        Sample { metric: self, value }
    }
}

/// One number of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// What was measured.
    pub metric: Metric,
    /// How much.
    pub value: f64,
}

/// Runs once; `true` asks for a short run that only warms up.
type Run = Box<dyn FnMut(bool) -> Result<Vec<Sample>, String>>;

/// Who competes.
pub struct Contender {
    /// In tables.
    pub name: String,
    /// Runs once.
    pub run: Run,
    /// What its worker is to do, if it has one: tests do it here.
    #[cfg(test)]
    pub job: Option<Job>,
}

impl Contender {
    /// From its name and what it does.
    pub fn new(name: impl Into<String>, run: impl FnMut(bool) -> Result<Vec<Sample>, String> + 'static) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
            #[cfg(test)]
            job: None,
        }
    }
}

/// What is measured.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// What is done.
    pub about: &'static str,
    /// By how many threads; 1 where the program decides.
    pub threads: usize,
    /// Who competes.
    pub contenders: Vec<Contender>,
    /// Why it cannot be measured here.
    pub skipped: Option<String>,
}

impl Case {
    /// A case that can be measured.
    pub fn new(name: &'static str, about: &'static str, threads: usize, contenders: Vec<Contender>) -> Self {
        Self { name, about, threads, contenders, skipped: None }
    }
    /// A case that cannot.
    pub fn skipped(name: &'static str, about: &'static str, why: String) -> Self {
        Self { name, about, threads: 1, contenders: Vec::new(), skipped: Some(why) }
    }
    /// A case for each number of threads of each work.
    pub fn of<K>(
        works: &'static [Work<K>],
        contenders: impl Fn(&'static Work<K>, usize) -> Vec<Contender>,
    ) -> Vec<Self> {
        let case = |work: &'static Work<K>| {
            let mut counts: Vec<usize> = work.threads.iter().map(|&count| counted(count)).collect();
            counts.dedup();
            let of = |threads| Self::new(work.name, work.about, threads, contenders(work, threads));
            counts.into_iter().map(of).collect::<Vec<_>>()
        };
        works.iter().flat_map(case).collect()
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} × {}", self.name, self.threads)
    }
}

/// As a number of threads: one for each CPU.
pub const CPUS: usize = usize::MAX;
/// Two for each.
pub const TWICE_CPUS: usize = usize::MAX - 1;

fn counted(threads: usize) -> usize {
    match threads {
        CPUS => cpus(),
        TWICE_CPUS => 2 * cpus(),
        threads => threads,
    }
}

/// One of several that do the same work: its key in a worker's argument, and its name in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// In the argument.
    pub key: &'static str,
    /// In tables.
    pub name: &'static str,
}

/// See [`Who`].
pub const fn who(key: &'static str, name: &'static str) -> Who {
    Who { key, name }
}

/// A line of a suite's table: what is done, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Work<K: 'static> {
    /// The case's name.
    pub name: &'static str,
    /// In words.
    pub about: &'static str,
    /// Numbers of threads; also [`CPUS`] and [`TWICE_CPUS`].
    pub threads: &'static [usize],
    /// Who competes; empty where it is the peers.
    pub who: &'static [Who],
    /// The suite's own.
    pub kind: K,
}

/// See [`Work`].
pub const fn work<K>(
    name: &'static str,
    about: &'static str,
    threads: &'static [usize],
    who: &'static [Who],
    kind: K,
) -> Work<K> {
    Work { name, about, threads, who, kind }
}

/// What a worker is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// A case.
    pub case: String,
    /// The key of who does it; empty where there is only one.
    pub who: String,
    /// By how many threads.
    pub threads: usize,
    /// Per cent of the full number of operations; 0 in tests, where everything is tiny and no program is put aside.
    pub scale: u64,
}

impl Job {
    /// From `CASE:WHO`.
    pub fn new(what: &str, threads: usize, scale: u64) -> Self {
        let (case, who) = what.split_once(':').unwrap_or((what, ""));
        Self { case: case.to_owned(), who: who.to_owned(), threads, scale }
    }
    /// As one word.
    pub fn word(&self) -> String {
        if self.who.is_empty() { self.case.clone() } else { format!("{}:{}", self.case, self.who) }
    }
    /// What is to be done.
    ///
    /// # Errors
    /// There is no such case, or nobody of that key in it.
    pub fn find<K>(&self, works: &'static [Work<K>]) -> Result<&'static Work<K>, String> {
        let work = works.iter().find(|work| work.name == self.case);
        let work = work.ok_or_else(|| format!("no case {}", self.case))?;
        let is_there = work.who.is_empty() || work.who.iter().any(|who| who.key == self.who);
        if is_there { Ok(work) } else { Err(self.nobody()) }
    }
    /// That nobody has its key.
    pub fn nobody(&self) -> String {
        format!("no {} in {}", self.who, self.case)
    }
    /// A part of so many operations, not fewer than `least`.
    pub fn part(&self, of: u64, least: u64) -> u64 {
        (of.saturating_mul(self.scale) / 100).max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKS: &[Work<u32>] =
        &[work("a", "", &[1, CPUS, TWICE_CPUS], &[who("us", "ours")], 7), work("b", "", &[0], &[], 8)];

    fn suite() -> Suite {
        const METRICS: &[Metric] = &[lower("op", "ns/op"), higher("rate", "1/s")];
        Suite::new("s", "", |_| Vec::new()).of_workers(|_| Ok(()), METRICS)
    }

    #[test]
    fn a_worker_s_lines_are_read() {
        let read = suite().samples("noise\nsample op 12.5\nsample rate 3\n").expect("two samples");
        assert_eq!(read, [lower("op", "ns/op").is(12.5), higher("rate", "1/s").is(3.0)]);
        for wrong in ["sample speed 1", "sample op x", "sample op", ""] {
            assert!(suite().samples(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_job_is_a_word() {
        for word in ["a:us", "b"] {
            assert_eq!(Job::new(word, 2, 20).word(), word);
        }
        let kind = |word: &str| Job::new(word, 1, 0).find(WORKS).map(|work| work.kind);
        assert_eq!((kind("a:us"), kind("b"), kind("b:any")), (Ok(7), Ok(8), Ok(8)));
        assert!(kind("a:them").is_err_and(|why| why.contains("them")) && kind("c").is_err());
        assert_eq!((Job::new("a", 1, 20).part(1000, 1), Job::new("a", 1, 0).part(1000, 3)), (200, 3));
    }

    #[test]
    fn numbers_of_threads_are_each_measured_once() {
        let counts: Vec<usize> = Case::of(WORKS, |_, _| Vec::new()).iter().map(|case| case.threads).collect();
        let all = [1, cpus(), 2 * cpus(), 0];
        assert_eq!(counts, if cpus() == 1 { &[1, 2, 0][..] } else { &all });
    }
}
