//! The seed's stress: about a hundred forced drains a second, by every way, under a page test and under redis, with all
//! contents checked, in both modes.
//!
//! It lasts a second, a minute with `ALLOTMENT_TEST_LONG=1`, and what `ALLOTMENT_TEST_SECONDS` says (of each
//! program in each mode): `ALLOTMENT_TEST_SECONDS=600 cargo test --release --test command stress::`.
#![allow(unsafe_code)] // pages that one owner holds

use crate::common::{BOTH, Mode, Program, Scratch, compile, long, modes, need, preloaded, skip, stop_group};
use allotment::drain::{self, DrainMode};
use allotment::pages::{self, Flags};
use serde_json::Value;
use std::alloc::{GlobalAlloc as _, Layout};
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a program is stressed.
fn lasts() -> Duration {
    let asked = std::env::var("ALLOTMENT_TEST_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(if long() { 60 } else { 1 }))
}

/// And how much longer at most, for what must have happened.
const PATIENCE: Duration = Duration::from_secs(60);

/// One program at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers that only look random.
struct Random(u64);
impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

const PAGE: usize = 4096;
/// Blocks that a thread has at most.
const LIVE: u64 = 300;
/// Threads that drain.
const DRAINERS: usize = 3;
/// What of a page is written and checked.
const PLACES: [usize; 3] = [0, 2048, PAGE - 8];

/// A block of pages, or an object.
#[derive(Clone, Copy, Debug)]
struct Block {
    address: usize,
    bytes: usize,
    /// Of pages; an object has none.
    is_pages: bool,
    stamp: u64,
}

impl Block {
    fn places(self) -> impl Iterator<Item = usize> {
        let pages = (0..self.bytes).step_by(PAGE).flat_map(|page| PLACES.map(|place| page + place));
        pages.filter(move |place| place + 8 <= self.bytes).map(move |place| self.address + place)
    }
    fn alloc(random: &mut Random, stamp: u64) -> Option<Self> {
        if random.below(3) == 0 {
            let bytes = 16 << random.below(12);
            let layout = Layout::from_size_align(bytes, 16).unwrap();
            // SAFETY: not of size zero.
            let address = unsafe { allotment::Allotment.alloc(layout) } as usize;
            return (address != 0).then(|| Self { address, bytes, is_pages: false, stamp }.written());
        }
        let order = match random.below(200) {
            0 => 9,
            1 => 4 + random.below(7) as usize,
            n if n < 20 => 3,
            n if n < 50 => 2,
            n if n < 90 => 1,
            _ => 0,
        };
        let zero = random.below(16) == 0;
        let block = pages::alloc(order, None, if zero { Flags::ZERO } else { Flags::NONE }).ok()?;
        let block = Self { address: block.as_ptr() as usize, bytes: PAGE << order, is_pages: true, stamp };
        assert!(block.address.is_multiple_of(block.bytes), "{block:?} is not aligned");
        if zero {
            block.check(0);
        }
        Some(block.written())
    }
    fn written(self) -> Self {
        for place in self.places() {
            // SAFETY: ours, and large enough.
            unsafe { (place as *mut u64).write_volatile(self.stamp ^ place as u64) };
        }
        self
    }
    /// What was written is there; with `stamp` zero: nothing is.
    fn check(self, stamp: u64) {
        for place in self.places() {
            let expected = if stamp == 0 { 0 } else { stamp ^ place as u64 };
            // SAFETY: ours, and large enough.
            let found = unsafe { (place as *const u64).read_volatile() };
            assert_eq!(found, expected, "at {place:#x} of {self:x?}");
        }
    }
    fn free(self) {
        self.check(self.stamp);
        if self.is_pages {
            // SAFETY: freed once.
            unsafe { pages::free(NonNull::new(self.address as *mut u8).unwrap()) }.unwrap();
        } else {
            let layout = Layout::from_size_align(self.bytes, 16).unwrap();
            // SAFETY: freed once.
            unsafe { allotment::Allotment.dealloc(self.address as *mut u8, layout) };
        }
    }
}

/// A thread of the page test: its own blocks, some from and for others.
fn work(thread: u64, shared: &Mutex<Vec<Block>>, stop: &AtomicBool, all: &AtomicU64) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (thread + 1));
    let mut blocks: Vec<Block> = Vec::new();
    let mut turns = 0;
    while !stop.load(Relaxed) {
        turns += 1;
        all.fetch_add(1, Relaxed);
        let few = if turns % 4096 < 2048 { LIVE } else { 8 };
        if (blocks.len() as u64) < few && random.below(5) < 3 {
            blocks.extend(Block::alloc(&mut random, thread << 56 | turns));
        } else if !blocks.is_empty() {
            let block = blocks.swap_remove(random.below(blocks.len() as u64) as usize);
            if random.below(8) == 0 {
                let mut shared = shared.lock().unwrap();
                shared.push(block);
                if shared.len() > 64 {
                    let at = random.below(64) as usize;
                    blocks.push(shared.swap_remove(at));
                }
            } else {
                block.free();
            }
        }
        if turns % 10_000 == 0 {
            // Many at once, past the lists, and a while without an allocation.
            let mut bulk = [0; 200];
            let n = pages::alloc_bulk(0, None, Flags::NONE, &mut bulk);
            let page = |address| Block { address, bytes: PAGE, is_pages: true, stamp: turns };
            bulk[..n].iter().for_each(|&address| _ = page(address).written());
            drain::quiescent(|| bulk[..n].iter().for_each(|&address| page(address).check(turns)));
            // SAFETY: freed once.
            unsafe { pages::free_bulk(&bulk[..n]) }.unwrap();
        }
    }
    blocks.into_iter().for_each(Block::free);
}

/// Pages that nobody has given back.
fn pages_out() -> usize {
    let free: usize = pages::zones().map(|zone| zone.managed - zone.free).sum();
    free - pages::lists().map(|list| list.count << list.order).sum::<usize>()
}

/// The page test itself, in a process of its own.
#[test]
#[ignore = "started by pages_under_drains"]
fn page_test() {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (shared, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    // Whatever the heap itself keeps, once.
    let threads = 2 * cpus as u64 + 1;
    let round = |lasts: Duration, pause: Duration| {
        stop.store(false, Relaxed);
        let [turns, drains, reached, of_cpus, bytes] = [const { AtomicU64::new(0) }; 5];
        // (By number: also without sequences.)
        let is_enough = || {
            let by_cpu = of_cpus.load(Relaxed) > 0 || pause < Duration::from_millis(1);
            turns.load(Relaxed) > 1000 && reached.load(Relaxed) > 0 && bytes.load(Relaxed) > 0 && by_cpu
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let (shared, stop, turns) = (&shared, &stop, &turns);
                    scope.spawn(move || work(thread, shared, stop, turns))
                })
                .collect();
            // A gentle drain waits for answers: so they meet.
            for _ in 0..DRAINERS {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        std::thread::sleep(pause);
                        let turn = drains.fetch_add(1, Relaxed);
                        let way = [DrainMode::Auto, DrainMode::Gentle, DrainMode::Expedited][(turn / 8 % 3) as usize];
                        let report = match turn % 8 {
                            // One soon after the other: here a fence that is missing shows.
                            3.. if pause < Duration::from_millis(1) => drain::all(DrainMode::Expedited),
                            0 => drain::idle(),
                            1 => {
                                let _ = allotment::Allotment.trim();
                                drain::DrainReport::default()
                            }
                            2 => drain::all(way),
                            _ => {
                                let report = drain::cpu((turn / 2 % cpus as u64) as u32, way);
                                of_cpus.fetch_add(report.reached as u64, Relaxed);
                                report
                            }
                        };
                        reached.fetch_add(report.reached as u64, Relaxed);
                        bytes.fetch_add(report.bytes, Relaxed);
                    }
                });
            }
            let began = Instant::now();
            // (Beside much other work a thread may not have begun by then.)
            let ends = || began.elapsed() >= lasts && (is_enough() || began.elapsed() > lasts + PATIENCE);
            while !ends() && !workers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                std::thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Relaxed);
            workers.into_iter().for_each(|worker| worker.join().expect("contents are as written"));
        });
        assert!(
            is_enough(),
            "{turns:?} turns, {drains:?} drains, {reached:?} sets, {of_cpus:?} by CPU, {bytes:?} bytes"
        );
        let [turns, drains, reached, of_cpus, bytes] =
            [turns, drains, reached, of_cpus, bytes].map(AtomicU64::into_inner);
        shared.lock().unwrap().drain(..).for_each(Block::free);
        let _ = allotment::Allotment.trim();
        println!(
            "{turns} turns, {drains} drains, {reached} sets ({of_cpus} by CPU), {bytes} bytes, {} pages out",
            pages_out()
        );
    };
    round(lasts() / 4, Duration::from_micros(50));
    let before = pages_out();
    round(lasts(), Duration::from_millis(20));
    // What the first round left, the second leaves: slabs of what is still used, no more.
    let after = pages_out();
    assert!(after <= before + 64, "{} pages were lost", after - before);
}

/// The page test, a hundred drains a second, with and without sequences, and with sheaves of two.
#[test]
fn pages_under_drains() {
    let _turn = turn();
    let tiny = "sheaf_objects=2,cache_floor=0,lazy_floor=0,lazy_ceiling=0";
    for (tunables, conf) in [("", ""), ("glibc.pthread.rseq=0", ""), ("", tiny)] {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "stress::page_test", "--ignored", "--nocapture"]);
        again.env("GLIBC_TUNABLES", tunables).env("ALLOTMENT_CONF", conf);
        let output = again.output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "[{tunables}{conf}] {}\n{out}{err}", output.status);
        assert!(out.contains("1 passed"), "{out}");
        for line in out.lines().filter(|line| line.contains(" drains, ")) {
            eprintln!("[{tunables}{conf}] {line}");
        }
    }
}

/// A connection to redis.
struct Client {
    reader: BufReader<UnixStream>,
    asked: Vec<u8>,
}

impl Client {
    fn ask(&mut self, words: &[&[u8]]) {
        let _ = write!(self.asked, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.asked, "${}\r\n", word.len());
            self.asked.extend_from_slice(word);
            self.asked.extend_from_slice(b"\r\n");
        }
    }
    fn send(&mut self) {
        self.reader.get_mut().write_all(&self.asked).expect("the server lives");
        self.asked.clear();
    }
    /// The next answer: a string's bytes, a line without its mark; nothing for what is not there.
    fn answer(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("the server lives");
        let line = line.trim_end();
        let Some(length) = line.strip_prefix('$') else {
            assert!(line.starts_with(['+', ':']), "the server says: {line}");
            return Some(line.as_bytes()[1..].to_vec());
        };
        let length = usize::try_from(length.parse::<i64>().unwrap()).ok()?;
        let mut bytes = vec![0; length + 2];
        self.reader.read_exact(&mut bytes).expect("the server lives");
        bytes.truncate(length);
        Some(bytes)
    }
    fn one(&mut self, words: &[&str]) -> String {
        self.ask(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        self.send();
        String::from_utf8_lossy(&self.answer().unwrap_or_default()).into_owned()
    }
}

/// What a key's value is, by its number.
fn value(seed: u64) -> Vec<u8> {
    let mut random = Random(seed | 1);
    let most = [40, 200, 2_000, 60_000][[0, 0, 0, 1, 1, 1, 1, 2, 2, 3][random.below(10) as usize]];
    let length = random.below(most) as usize;
    let mut bytes = seed.to_le_bytes().repeat(length / 8 + 1);
    bytes.truncate(length);
    bytes
}

/// Sets, appends, gets and deletes keys, and compares every answer with what it must be.
fn load(client: &mut Client, lasts: Duration) -> u64 {
    const KEYS: u64 = 20_000;
    let mut random = Random(88_172_645_463_325_252);
    let mut model: HashMap<u64, Vec<u64>> = HashMap::new();
    let whole = |parts: &[u64]| parts.iter().flat_map(|&seed| value(seed)).collect::<Vec<u8>>();
    let (began, mut saved, mut commands) = (Instant::now(), Instant::now(), 0);
    while began.elapsed() < lasts {
        let mut expected: Vec<Option<Vec<u8>>> = Vec::new();
        for _ in 0..100 {
            commands += 1;
            let (key, seed) = (random.below(KEYS), random.0);
            let name = format!("key:{key}");
            match random.below(8) {
                0..=2 => {
                    client.ask(&[b"SET", name.as_bytes(), &value(seed)]);
                    model.insert(key, vec![seed]);
                    expected.push(Some(b"OK".to_vec()));
                }
                3 if model.get(&key).is_some_and(|parts| parts.len() < 6) => {
                    client.ask(&[b"APPEND", name.as_bytes(), &value(seed)]);
                    let parts = model.get_mut(&key).expect("seen");
                    parts.push(seed);
                    expected.push(Some(whole(parts).len().to_string().into_bytes()));
                }
                4 => {
                    client.ask(&[b"DEL", name.as_bytes()]);
                    let was = model.remove(&key).is_some();
                    expected.push(Some(u8::from(was).to_string().into_bytes()));
                }
                _ => {
                    client.ask(&[b"GET", name.as_bytes()]);
                    expected.push(model.get(&key).map(|parts| whole(parts)));
                }
            }
        }
        client.send();
        for expected in expected {
            assert!(client.answer() == expected, "an answer is not what was written");
        }
        // A child that shares all of it while drains go on.
        if saved.elapsed() > Duration::from_secs(2) {
            saved = Instant::now();
            client.one(&["BGSAVE", "SCHEDULE"]);
        }
    }
    for (key, parts) in &model {
        client.ask(&[b"GET", format!("key:{key}").as_bytes()]);
        client.send();
        assert!(client.answer() == Some(whole(parts)), "key {key} is not what was written");
    }
    assert_eq!(client.one(&["DBSIZE"]), model.len().to_string());
    while !client.one(&["INFO", "persistence"]).contains("rdb_bgsave_in_progress:0") {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(client.one(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:ok"));
    commands
}

/// redis, a hundred drains a second from a thread that is loaded into it.
#[test]
fn redis_under_drains() {
    let test = "redis_under_drains";
    let Some(_) = need(test, "redis-server", "redis-server") else { return };
    let Some(drainer) = compile("drainer.c", "libdrainer.so", &["-shared", "-fPIC", "-ldl"]) else { return };
    if !preloaded() {
        return skip(test, "nothing to drain");
    }
    let _turn = turn();
    for mode in modes(BOTH).into_iter().filter(|&mode| mode != Mode::Plain) {
        let scratch = Scratch::new("redis-drained");
        let (socket, stats, log) = (scratch.join("s"), scratch.join("stats.json"), scratch.join("log"));
        let directory = scratch.path().to_str().unwrap();
        let words =
            ["redis-server", "--port", "0", "--unixsocket", socket.to_str().unwrap(), "--dir", directory, "--save", ""];
        let program = Program::new(mode, &words).set("LD_PRELOAD", drainer.to_str().unwrap());
        let mut child = program.start(&log, &stats);
        let begin = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) => {
                    let text = fs::read_to_string(&log).unwrap_or_default();
                    assert!(begin.elapsed() < Duration::from_secs(60), "{error}\n{text}");
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        };
        let mut client = Client { reader: BufReader::new(stream), asked: Vec::new() };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| load(&mut client, lasts())));
        let Ok(commands) = done else {
            stop_group(child.id());
            let _ = child.wait();
            panic!("[{}] {}", mode.name(), fs::read_to_string(&log).unwrap_or_default());
        };
        client.ask(&[b"SHUTDOWN", b"NOSAVE"]);
        client.send();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{status}\n{}", fs::read_to_string(&log).unwrap_or_default());
        let stats: Value = serde_json::from_slice(&fs::read(&stats).unwrap()).unwrap();
        let number = |name: &str| stats.pointer(name).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {name}"));
        let drained = number("/events/drain");
        eprintln!("[{}] {commands} commands, {drained} sets drained", mode.name());
        assert!(drained > 0, "is the drainer loaded?");
        assert!(number("/operations/allocs") > 1000);
        assert_eq!(number("/events/bad_free"), 0);
    }
}
