//! `stat`, `tune`, `drain`, `purge` against programs whose holdings are known (`c/watched.c`), against files that are
//! no boards, and against processes that cannot answer.

mod common;
use allotment_engine::stat::board::{MAGIC, SHARE_BYTES, SHOW, VERSION};
use common::{ALLOTMENT, BOTH, Mode, Scratch, find, modes, need, program, skip};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

const MIB: u64 = 1 << 20;

/// `watched.c`, running.
struct Watched {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pid: u32,
}

impl Watched {
    /// With these words before `--` of `allotment run`.
    fn start(words: &[&str]) -> Option<Self> {
        Self::start_by(Command::new(ALLOTMENT), words)
    }

    fn start_by(mut command: Command, words: &[&str]) -> Option<Self> {
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
    fn line(&mut self, word: &str) -> u32 {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let rest = line.trim_end().strip_prefix(word).unwrap_or_else(|| panic!("{line:?}, not {word}"));
        rest.trim().parse().unwrap_or(0)
    }

    /// Has it do something.
    fn tell(&mut self, line: &str) -> &mut Self {
        writeln!(self.input, "{line}").unwrap();
        self.line("done");
        self
    }

    fn file(&self) -> PathBuf {
        let link = fs::read_link(format!("/proc/{}/ns/pid", self.pid)).unwrap();
        let namespace: String = link.to_str().unwrap().chars().filter(char::is_ascii_digit).collect();
        PathBuf::from(format!("/dev/shm/allotment-{namespace}-{}", self.pid))
    }

    fn signal(&self, name: &str) {
        signal(self.pid, name);
    }

    fn json(&self, words: &[&str]) -> Value {
        let pid = self.pid.to_string();
        let words: Vec<&str> = ["stat", pid.as_str(), "--json"].iter().chain(words).copied().collect();
        serde_json::from_str(&done(&words)).unwrap()
    }

    /// A command on it that must succeed; its standard output.
    fn done(&self, command: &str, words: &[&str]) -> String {
        let pid = self.pid.to_string();
        done(&[&[command, pid.as_str()], words].concat())
    }

    /// A command on it that must fail with this code and one line that has these words.
    #[track_caller]
    fn fails(&self, command: &str, words: &[&str], code: i32, said: &[&str]) {
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

fn signal(pid: u32, name: &str) {
    assert!(pid > 1, "no process of ours");
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
}

fn allotment(words: &[&str]) -> Output {
    Command::new(ALLOTMENT).args(words).env("LC_ALL", "C").output().unwrap()
}

#[track_caller]
fn done(words: &[&str]) -> String {
    let output = allotment(words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?} ended with {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn fails(words: &[&str], code: i32, said: &[&str]) {
    let output = allotment(words);
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}\n{line}");
    assert!(said.iter().all(|word| line.contains(word)), "{words:?} says {line:?}, not {said:?}");
    assert_eq!(line.lines().count(), 1, "{line}");
}

/// Waits for something that will be so.
#[track_caller]
fn until(what: &str, is: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(120), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn number(value: &Value, pointer: &str) -> u64 {
    let found = value.pointer(pointer).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no number {pointer} in {value}"))
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).unwrap_or_else(|| panic!("no list {pointer} in {value}"))
}

fn sum(values: &[Value], of: impl Fn(&Value) -> u64) -> u64 {
    values.iter().map(of).sum()
}

/// Sums over classes are the totals; times add up to their counts.
fn adds_up(all: &Value) {
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

#[test]
fn sections_are_those_of_the_program() {
    for mode in modes(BOTH).into_iter().filter(|&mode| mode != Mode::Plain) {
        let knob = format!("mode={}", mode.knob());
        let Some(watched) = Watched::start(&["--set", &knob]) else { return };
        let all = watched.json(&[]);
        adds_up(&all);
        assert_eq!(all["silence"], Value::Null, "{all}");
        assert_eq!(number(&all, "/pid"), u64::from(watched.pid));
        let off = number(&all, "/memory/objects_off_by");
        let class = list(&all, "/slabinfo").iter().find(|slab| slab["objsize"] == 112).unwrap();
        assert!((500..600 + off).contains(&(number(class, "/active_objs") + off)), "{class}");
        assert!(number(class, "/num_objs") >= number(class, "/active_objs") + number(class, "/sharedavail"), "{class}");
        assert!((10 * MIB..11 * MIB).contains(&number(&all, "/memory/in_use_area_bytes")));
        // What the walk finds is what the levels say: nothing changes here.
        let areas = list(&all, "/vmallocinfo/areas");
        let bytes = |lazy: bool| sum(areas, |area| if area["lazy"] == lazy { number(area, "/bytes") } else { 0 });
        assert_eq!(bytes(false), number(&all, "/vmstat/areas"), "{}", all["vmallocinfo"]);
        assert_eq!(bytes(true), number(&all, "/vmstat/lazy"), "{}", all["vmallocinfo"]);
        assert!(bytes(true) >= 6 * MIB);
        let zones = list(&all, "/zoneinfo");
        let free = sum(zones, |zone| number(zone, "/pages/free"));
        assert_eq!(free * 4096, number(&all, "/vmstat/pages_free"));
        let blocks = |zone: &Value| {
            list(zone, "/free").iter().enumerate().map(|(order, n)| n.as_u64().unwrap() << order).sum::<u64>()
        };
        assert_eq!(sum(list(&all, "/buddyinfo"), blocks), free);
        let sets = list(&all, "/sets");
        assert!(
            !sets.is_empty()
                && sum(sets, |set| number(set, "/bytes"))
                    <= number(&all, "/memory/in_caches") + number(&all, "/vmstat/pages_managed")
        );
        assert_eq!(number(&all, "/percpu_stats/totals/nr_cur_alloc"), 0);
        assert_eq!(all["knobs"]["lazy_floor"]["text"], "64M");
        assert!(number(&all, "/latency/refill/count") > 0);
        let resident = number(&all, "/process/resident");
        assert!((16 * MIB..64 * MIB).contains(&resident), "{resident}");
        // Text and JSON are the same numbers.
        let text = watched.done("stat", &["vmstat", "--no-ask"]);
        assert!(text.lines().any(|line| line == format!("areas {}", number(&all, "/vmstat/areas"))), "{text}");
        let text = watched.done("stat", &["slabinfo"]);
        let objects: u64 =
            text.lines().skip(2).map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(objects, number(&all, "/memory/in_use_slab_objects"));
        for (section, begins) in [
            ("zoneinfo", "Node 0, zone"),
            ("buddyinfo", "Node 0, zone"),
            ("slabinfo", "slabinfo - version: 2.1"),
            ("vmallocinfo", "0x"),
            ("percpu_stats", "Percpu Memory Statistics"),
            ("latency", "purge: "),
            ("sets", "index="),
            ("knobs", "mode "),
        ] {
            let text = watched.done("stat", &[section]);
            assert!(text.starts_with(begins), "{section}:\n{text}");
        }
        let text = watched.done("stat", &[]);
        assert!(text.contains(all["mode"].as_str().unwrap()) && text.contains("MiB now, peak"), "{text}");
        let listed = done(&["stat"]);
        assert!(
            listed.lines().any(|line| line.split_whitespace().next() == Some(&watched.pid.to_string())),
            "{listed}"
        );
    }
}

/// Whatever runs meanwhile: classes add up, counters only grow, and what is in use is within what the threads can hold.
#[test]
fn sums_hold_while_threads_run() {
    for mode in modes(BOTH).into_iter().filter(|&mode| mode != Mode::Plain) {
        let knob = format!("mode={}", mode.knob());
        let Some(mut watched) = Watched::start(&["--set", &knob]) else { return };
        let calm = watched.json(&[]);
        let (calm, begun) = (number(&calm, "/memory/in_use"), number(&calm, "/operations/allocs"));
        watched.tell("busy 4");
        let mut before: Option<Value> = None;
        for _ in 0..20 {
            let all = watched.json(&[]);
            adds_up(&all);
            if let Some(before) = &before {
                for name in ["allocs", "frees", "alloc_slowpath", "area_alloc", "area_reuse", "sheaf_refill"] {
                    let pointer = format!("/vmstat/{name}");
                    assert!(number(&all, &pointer) >= number(before, &pointer), "{name} went back");
                }
            }
            // Four threads hold at most 64 blocks of 100,000 bytes each. Objects are off by what was counted while the
            // tallies were read one after the other: some thousands of at most 4 KiB.
            let most = calm + 4 * 64 * 102_400 + 64 * MIB;
            assert!(number(&all, "/memory/in_use") < most, "{}", all["memory"]);
            before = Some(all);
        }
        until("allocations", || number(&watched.json(&["vmstat"]), "/vmstat/allocs") > begun + 100_000);
    }
}

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
    fs::write(&path, &whole).unwrap();
    let copy: Value = serde_json::from_str(&done(&["stat", name, "--json"])).unwrap();
    adds_up(&copy);
    assert!(list(&copy, "/vmallocinfo/areas").len() >= 2, "{copy}");
    done(&["stat", name]);
    fails(&["stat", name, "--watch", "1"], 1, &["copy"]);
    for (bytes, said) in [(0, "truncated"), (100, "truncated"), (SHOW - 1, "truncated")] {
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
    for round in 0..8 {
        let mut bytes = whole.clone();
        let (from, to) = if round % 2 == 0 { (16, 64 * 1024) } else { (SHOW + 4, SHOW + 64 * 1024) };
        for chunk in bytes[from..to].chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            chunk.copy_from_slice(&state.to_ne_bytes()[..chunk.len()]);
        }
        fs::write(&path, &bytes).unwrap();
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
    assert!(path.exists(), "nobody has looked yet");
    fails(&["stat", &pid], 1, &["no process"]);
    assert!(!path.exists());
    // And one that ends by itself leaves nothing.
    let Some(mut watched) = Watched::start(&[]) else { return };
    let path = watched.file();
    writeln!(watched.input, "end").unwrap();
    watched.child.wait().unwrap();
    assert!(!path.exists());
}

/// A forked child has a board of its own.
#[test]
fn a_forked_child_publishes_for_itself() {
    let Some(mut watched) = Watched::start(&[]) else { return };
    writeln!(watched.input, "fork").unwrap();
    let child = watched.line("child");
    assert_ne!(child, watched.pid);
    let text = done(&["stat", &child.to_string(), "--json"]);
    let of_child: Value = serde_json::from_str(&text).unwrap();
    adds_up(&of_child);
    let of_parent = watched.json(&[]);
    let areas = |all: &Value| number(all, "/memory/in_use_area_bytes");
    assert!((13 * MIB..14 * MIB).contains(&areas(&of_child)), "{}", of_child["memory"]);
    assert!((10 * MIB..11 * MIB).contains(&areas(&of_parent)), "{}", of_parent["memory"]);
    assert_eq!((number(&of_child, "/pid"), number(&of_parent, "/pid")), (u64::from(child), u64::from(watched.pid)));
    signal(child, "KILL");
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

/// What is tuned is seen, and a bad word changes nothing.
#[test]
fn tune_sets_what_stat_shows() {
    let Some(watched) = Watched::start(&[]) else { return };
    let text = |all: &Value, knob: &str| all["knobs"][knob]["text"].as_str().unwrap().to_owned();
    assert_eq!(
        watched.done("tune", &["cache_floor=8M", "drain=gentle"]),
        "cache_floor: 1M → 8M\ndrain: auto → gentle\n"
    );
    let all = watched.json(&["knobs"]);
    assert_eq!((text(&all, "cache_floor"), text(&all, "drain")), ("8M".into(), "gentle".into()));
    assert!(watched.done("tune", &["cache_floor"]).starts_with("cache_floor "));
    let listed = watched.done("tune", &[]);
    assert!(listed.lines().any(|line| line.starts_with("cache_floor ") && line.contains(" 8M ")), "{listed}");
    watched.fails("tune", &["cache_flor=1"], 2, &["cache_floor"]);
    watched.fails("tune", &["cache_floor=2G", "drain=off"], 2, &["cache_floor"]);
    watched.fails("tune", &["mode=fallback"], 2, &["start only"]);
    assert_eq!(text(&watched.json(&["knobs"]), "drain"), "gentle");
    // A name, and nobody's.
    assert_eq!(allotment(&["tune", "1x"]).status.code(), Some(1));
}

fn cached(all: &Value) -> u64 {
    sum(list(all, "/sets"), |set| number(set, "/bytes"))
}

/// Drains and purges act at once, say what they did, and it is seen.
#[test]
fn drain_and_purge_act_and_say_so() {
    for mode in modes(BOTH).into_iter().filter(|&mode| mode != Mode::Plain) {
        let knob = format!("mode={}", mode.knob());
        let Some(mut watched) = Watched::start(&["--set", &knob]) else { return };
        watched.tell("cache");
        let before = watched.json(&[]);
        assert!(cached(&before) > 0, "{}", before["sets"]);
        let drained: Value = serde_json::from_str(&watched.done("drain", &["--json"])).unwrap();
        let after = watched.json(&[]);
        assert!(number(&drained, "/bytes") > 0 && number(&drained, "/objects") > 0, "{drained}");
        assert_eq!(number(&drained, "/unreached"), 0, "{drained}");
        // (Between the two the housekeeper may cache a little.)
        assert!(cached(&after) < cached(&before), "{} then {}", before["sets"], after["sets"]);
        assert!(number(&after, "/vmstat/drain") > number(&before, "/vmstat/drain"));
        assert!(number(&after, "/latency/drain/count") > number(&before, "/latency/drain/count"));
        for words in [&["--gentle"][..], &["--expedited"], &["--idle"], &["--cpu", "0"]] {
            let line = watched.done("drain", words);
            assert!(line.contains(" from ") && line.lines().count() == 1, "{line}");
        }
        assert!(number(&after, "/vmstat/lazy") >= 6 * MIB);
        let purged: Value = serde_json::from_str(&watched.done("purge", &["--json"])).unwrap();
        let (was, is) = (number(&purged, "/resident_before"), number(&purged, "/resident_after"));
        assert!(number(&purged, "/bytes") >= 6 * MIB && is + 5 * MIB < was, "{purged}");
        let purged = watched.json(&[]);
        assert_eq!(number(&purged, "/vmstat/lazy"), 0);
        assert!(number(&purged, "/vmstat/purge_bytes") > number(&after, "/vmstat/purge_bytes"));
        assert!(watched.done("purge", &[]).contains("given back; resident"));
        // What was in use still is.
        assert!((10 * MIB..11 * MIB).contains(&number(&purged, "/memory/in_use_area_bytes")));
    }
}

/// A stopped process is shown as it was, refuses nothing for ever, and answers when it goes on.
#[test]
fn a_stopped_process_is_said_to_be_stopped() {
    let Some(watched) = Watched::start(&[]) else { return };
    let zones = watched.done("stat", &["zoneinfo"]);
    watched.signal("STOP");
    until("stopped", || fs::read_to_string(format!("/proc/{}/stat", watched.pid)).unwrap().contains(") T "));
    let output = allotment(&["stat", &watched.pid.to_string(), "zoneinfo"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("is stopped") && said.contains(" ago"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), zones);
    // Its counters need nobody's answer.
    watched.done("stat", &["vmstat"]);
    watched.fails("drain", &[], 1, &["is stopped"]);
    // A commander that is killed while it waits leaves the mailbox usable.
    let mut killed =
        Command::new(ALLOTMENT).args(["purge", &watched.pid.to_string()]).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    killed.kill().unwrap();
    killed.wait().unwrap();
    watched.signal("CONT");
    watched.done("drain", &[]);
    assert_eq!(watched.done("tune", &["cache_share=8"]), "cache_share: 4 → 8\n");
    assert_eq!(watched.json(&["sets"])["silence"], Value::Null);
}

/// Many at once take turns, and every one is answered.
#[test]
fn commanders_take_turns() {
    let Some(mut watched) = Watched::start(&[]) else { return };
    watched.tell("busy 2");
    let pid = watched.pid.to_string();
    std::thread::scope(|scope| {
        for at in 0..6 {
            let pid = &pid;
            scope.spawn(move || {
                for round in 0..5 {
                    let share = format!("cache_share={}", 1 + at * 5 + round);
                    let words: &[&str] = match (at + round) % 4 {
                        0 => &["drain", pid],
                        1 => &["tune", pid, &share],
                        2 => &["stat", pid, "zoneinfo", "sets"],
                        _ => &["purge", pid],
                    };
                    done(words);
                }
            });
        }
    });
    adds_up(&watched.json(&[]));
}

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
    assert_eq!(text.matches("\ncold_alloc ").count(), 3, "{text}");
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

/// What is asked wrongly is answered clearly, and nothing is done.
#[test]
fn wrong_words_are_answered() {
    let Some(watched) = Watched::start(&[]) else { return };
    watched.fails("drain", &["--cpu", "4096"], 2, &["no CPU 4096", "this machine has 0"]);
    watched.fails("tune", &["8MiB"], 2, &["`8MiB`", "KEY=VALUE"]);
    watched.fails("tune", &["lazy_floor=8MiBs"], 2, &["`8MiBs`", "bytes from"]);
    assert_eq!(watched.done("tune", &["cache_floor=2.5 MiB"]), "cache_floor: 1M → 2560K\n");
    assert_eq!(watched.done("tune", &["cache_floor=3,145,728"]), "cache_floor: 2560K → 3M\n");
    let held = number(&watched.json(&[]), "/memory/in_use");
    assert!(held > 8 * MIB, "{held}");
    watched.fails("tune", &["hard_limit=8M"], 1, &["hard_limit=8M", "in use", "nothing was changed"]);
    assert_eq!(watched.json(&["knobs"])["knobs"]["hard_limit"]["text"], "none");
    assert_eq!(watched.done("tune", &["hard_limit=cgroup"]), "hard_limit: none → cgroup\n");
    assert_eq!(watched.done("tune", &["hard_limit=1G"]), "hard_limit: cgroup → 1G\n");
    let pid = watched.pid.to_string();
    for words in [&["stat"][..], &["stat", &pid], &["stat", &pid, "--json"], &["tune", &pid], &["purge", &pid]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(ALLOTMENT).args(words).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*said), (Some(1), "allotment: cannot write: No space left on device\n"));
    }
}

/// A name where a number is wanted; of several, the one who asks chooses.
#[test]
fn programs_are_found_by_name() {
    let Some(binary) = program("watched.c") else { return };
    let scratch = Scratch::new("named");
    let name = format!("named-{}", std::process::id());
    fs::copy(&binary, scratch.join(&name)).unwrap();
    let start = || {
        let mut command = Command::new(ALLOTMENT);
        command.args(["run", "--"]).arg(scratch.join(&name)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut watched = Watched { child, input, output, pid: 0 };
        watched.pid = watched.line("ready");
        watched
    };
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

/// A parser that Prometheus' own client library brings accepts the exposition, and finds our families.
#[test]
fn prometheus_reads_the_exposition() {
    let test = "prometheus_reads_the_exposition";
    let Some(watched) = Watched::start(&[]) else { return };
    let text = watched.done("stat", &["--openmetrics"]);
    assert!(text.ends_with("# EOF\n"));
    let Some(python) = find("python3") else { return skip(test, "no python3 here (Debian package python3)") };
    let scratch = Scratch::new("prometheus");
    let venv = scratch.join("venv");
    let run = |program: &Path, words: &[&str]| {
        Command::new(program)
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let pip = venv.join("bin/pip");
    if !run(&python, &["-m", "venv", venv.to_str().unwrap()]) || !run(&pip, &["install", "-q", "prometheus_client"]) {
        return skip(test, "prometheus_client cannot be installed here");
    }
    fs::write(scratch.join("metrics"), &text).unwrap();
    let script = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
families = {family.name: family for family in parse(open(sys.argv[1]).read())}
for name, kind in [('allotment_in_use_bytes', 'gauge'), ('allotment_cold_alloc', 'counter'),
                   ('allotment_refill_seconds', 'histogram'), ('allotment_process_info', 'gauge')]:
    assert families[name].type == kind, name
print(int(sum(sample.value * int(sample.labels['class']) for sample in families['allotment_class_objects'].samples)),
      int(families['allotment_in_use_bytes'].samples[0].value - families['allotment_areas_bytes'].samples[0].value))
";
    let output = Command::new(venv.join("bin/python"))
        .args(["-c", script, scratch.join("metrics").to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let line = String::from_utf8(output.stdout).unwrap();
    let (classes, total) = line.trim().split_once(' ').unwrap();
    assert_eq!(classes, total);
}

/// A port that nobody listens on just now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The body of an answer; nothing while nobody answers.
fn get(port: u16, path: &str) -> String {
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    let text = ask().unwrap_or_default();
    text.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned())
}

/// A process that ends with its owner.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// node_exporter's textfile collector takes the metrics of one process and of all, and Prometheus those and ours.
#[test]
fn collectors_take_the_metrics() {
    let test = "collectors_take_the_metrics";
    let Some(watched) = Watched::start(&[]) else { return };
    let Some(exporter) = need(test, "prometheus-node-exporter", "prometheus-node-exporter") else { return };
    let scratch = Scratch::new("collectors");
    let file = scratch.join("allotment.prom");
    let write = |words: &[&str]| {
        let words = [&["stat"], words, &["--openmetrics", "--output", file.to_str().unwrap()]].concat();
        assert_eq!(done(&words), "");
        fs::read_to_string(&file).unwrap()
    };
    let pid = watched.pid.to_string();
    let one = write(&[&pid]);
    let port = free_port();
    let quiet = |command: &mut Command| {
        Ending(command.stdout(Stdio::null()).stderr(Stdio::null()).current_dir(scratch.path()).spawn().unwrap())
    };
    let _exporter = quiet(
        Command::new(exporter)
            .arg("--collector.disable-defaults")
            .arg("--collector.textfile")
            .arg(format!("--collector.textfile.directory={}", scratch.path().display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}")),
    );
    let scrape = |wanted: &str| {
        until(wanted, || get(port, "/metrics").lines().any(|line| line.starts_with(wanted)));
        let text = get(port, "/metrics");
        assert!(text.contains("\nnode_textfile_scrape_error 0\n"), "{text}");
        text
    };
    let text = scrape("allotment_in_use_bytes");
    // Every sample that was written is shown.
    let samples = |text: &str| text.lines().filter(|line| line.starts_with("allotment_")).count();
    assert_eq!(samples(&text), samples(&one));
    let all = write(&["--all"]);
    let label = format!("{{cgroup=\"{}\",name=\"watched\",pid=\"{pid}\"}}", cgroup_of(&all, &pid));
    let text = scrape(&format!("allotment_in_use_bytes{label} "));
    assert_eq!(samples(&text), samples(&all));
    // A bounded number, and nothing else in the directory.
    let own = all.lines().filter(|line| line.contains(&format!("pid=\"{pid}\""))).count();
    assert!((50..200).contains(&own), "{own}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    assert!(
        allotment(&["stat", "--all"]).status.code() == Some(2)
            && allotment(&["stat", &pid, "--all"]).status.code() == Some(2)
    );

    let Some(prometheus) = need(test, "prometheus", "prometheus") else { return };
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let Ok(mut stream) = stream else { continue };
            let _ = stream.read(&mut [0; 4096]);
            let head =
                "HTTP/1.0 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\r\n";
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(one.as_bytes()));
        }
    });
    let conf = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: node\n  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n\
         - job_name: own\n  static_configs: [{{targets: ['127.0.0.1:{own}']}}]\n"
    );
    fs::write(scratch.join("prometheus.yml"), conf).unwrap();
    let port = free_port();
    let _prometheus = quiet(
        Command::new(prometheus)
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address=127.0.0.1:{port}")),
    );
    let has = |job: &str, name: &str| {
        let answer = get(port, &format!("/api/v1/query?query={name}%7Bjob=%22{job}%22%7D"));
        answer.contains(&format!("\"__name__\":\"{name}\"")) && answer.contains(job)
    };
    for name in ["allotment_in_use_bytes", "allotment_cold_alloc_total", "allotment_refill_seconds_bucket"] {
        until(name, || has("node", name) && has("own", name));
    }
}

/// The cgroup of a process among the metrics of all.
fn cgroup_of(all: &str, pid: &str) -> String {
    let line = all
        .lines()
        .find(|line| line.starts_with("allotment_in_use_bytes{") && line.contains(&format!("pid=\"{pid}\"")));
    let line = line.unwrap_or_else(|| panic!("no process {pid} in\n{all}"));
    line.split("cgroup=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}

/// What the page and the dashboard tell operators to use: right by their own tools, and of metrics that there are.
#[test]
fn units_rules_and_dashboard_are_right() {
    let test = "units_rules_and_dashboard_are_right";
    let page = include_str!("../../docs/observing.md");
    let scratch = Scratch::new("rules");
    let mut files = Vec::new();
    for block in page.split("\n```").filter(|block| block.starts_with("ini\n# ") || block.starts_with("yaml\n# ")) {
        let (name, text) = block.split_once("\n# ").unwrap().1.split_once('\n').unwrap();
        let name = name.rsplit('/').next().unwrap().to_owned();
        fs::write(scratch.join(&name), text.replace("/usr/local/bin/allotment", ALLOTMENT)).unwrap();
        files.push(name);
    }
    assert_eq!(
        files,
        ["allotment-metrics.service", "allotment-metrics.timer", "prometheus.yml", "allotment-rules.yml"]
    );
    let dashboard: Value = serde_json::from_str(include_str!("../../docs/grafana.json")).unwrap();
    let targets = list(&dashboard, "/panels").iter().flat_map(|panel| list(panel, "/targets"));
    let queries: Vec<String> = targets
        .map(|target| target["expr"].as_str().unwrap().replace("$instance", ".*").replace("$name", ".*"))
        .collect();
    assert!(queries.len() >= 10, "{queries:?}");
    // Every metric is one that there is.
    if let Some(watched) = Watched::start(&[]) {
        let all = done(&["stat", "--all", "--openmetrics"]);
        assert!(all.contains(&format!("pid=\"{}\"", watched.pid)));
        let names: std::collections::BTreeSet<&str> =
            all.lines().filter_map(|line| line.split(['{', ' ']).next()).filter(|name| *name != "#").collect();
        let rules = fs::read_to_string(scratch.join("allotment-rules.yml")).unwrap();
        for text in queries.iter().map(String::as_str).chain([rules.as_str()]) {
            let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_:".contains(letter));
            for word in words.filter(|word| word.starts_with("allotment_")) {
                assert!(names.contains(word), "there is no {word}\n{text}");
            }
        }
    }
    let checked = |program: &Path, words: &[&str]| {
        let output = Command::new(program).args(words).current_dir(scratch.path()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{words:?}\n{}", String::from_utf8_lossy(&said));
    };
    if let Some(analyze) = need(test, "systemd-analyze", "systemd") {
        checked(&analyze, &["verify", "--man=no", "./allotment-metrics.service", "./allotment-metrics.timer"]);
    }
    let Some(promtool) = need(test, "promtool", "prometheus") else { return };
    checked(&promtool, &["check", "config", "prometheus.yml"]);
    let rules: Vec<String> = queries
        .iter()
        .enumerate()
        .map(|(at, query)| format!("- record: query:{at}\n    expr: {}\n", Value::from(query.as_str())))
        .collect();
    fs::write(scratch.join("queries.yml"), format!("groups:\n- name: a\n  rules:\n  {}", rules.join("  "))).unwrap();
    checked(&promtool, &["check", "rules", "queries.yml"]);
    // Two of the alerts, on numbers: one fires, the other is too young to.
    let unit = "rule_files: [allotment-rules.yml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {series: 'allotment_bad_free_total{name=\"a\",pid=\"7\"}', values: '0 0 1 1 1'}
  - {series: 'allotment_cached_bytes{name=\"a\",cgroup=\"/x\"}', values: '400000000+0x40'}
  - {series: 'allotment_lazy_bytes{name=\"a\",cgroup=\"/x\"}', values: '0+0x40'}
  - {series: 'allotment_pages_dirty_bytes{name=\"a\",cgroup=\"/x\"}', values: '0+0x40'}
  - {series: 'allotment_in_use_bytes{name=\"a\",cgroup=\"/x\"}', values: '1000000+0x40'}
  alert_rule_test:
  - eval_time: 1m
    alertname: AllotmentBadPointer
  - eval_time: 3m
    alertname: AllotmentBadPointer
    exp_alerts:
    - exp_labels: {severity: critical, name: a, pid: '7'}
      exp_annotations: {summary: 'a (7) freed a pointer that is foreign, misplaced or freed already'}
  - eval_time: 20m
    alertname: AllotmentKeepsMemory
  - eval_time: 35m
    alertname: AllotmentKeepsMemory
    exp_alerts:
    - exp_labels: {severity: warning, name: a, cgroup: /x}
      exp_annotations: {summary: 'a keeps 381.5MiB that nothing uses; `allotment purge` gives it back'}
";
    fs::write(scratch.join("unit.yml"), unit).unwrap();
    checked(&promtool, &["test", "rules", "unit.yml"]);
}

/// As much of JSON Schema as `docs/heap.schema.json` uses: where a value is not of it.
fn conforms(schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{place}: {what}: {value}"));
    let rule = schema.as_object().unwrap();
    for key in rule.keys() {
        let known = ["$schema", "title", "description", "type", "properties", "required", "additionalProperties"];
        let more = ["items", "minimum", "enum", "const"];
        assert!(known.contains(&key.as_str()) || more.contains(&key.as_str()), "{place}: the test does not know {key}");
    }
    let is = |kind: &Value| match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("type {other}"),
    };
    match &rule.get("type") {
        Some(Value::Array(kinds)) if !kinds.iter().any(is) => return wrong("type"),
        Some(kind @ Value::String(_)) if !is(kind) => return wrong("type"),
        _ => {}
    }
    if rule.get("const").is_some_and(|one| one != value)
        || rule.get("enum").is_some_and(|all| !all.as_array().unwrap().contains(value))
        || rule.get("minimum").is_some_and(|least| value.as_f64() < least.as_f64() && value.is_number())
    {
        return wrong("value");
    }
    if let Some(entries) = value.as_object() {
        for name in rule.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !entries.contains_key(name.as_str().unwrap()) {
                return wrong(&format!("{name} is missing"));
            }
        }
        for (name, entry) in entries {
            match (schema["properties"].get(name), rule.get("additionalProperties")) {
                (Some(inner), _) | (None, Some(inner @ Value::Object(_))) => {
                    conforms(inner, entry, &format!("{place}/{name}"))?;
                }
                _ => return wrong(&format!("{name} is in no schema")),
            }
        }
    }
    if let (Some(inner), Some(items)) = (rule.get("items"), value.as_array()) {
        items.iter().try_for_each(|item| conforms(inner, item, &format!("{place}[]")))?;
    }
    Ok(())
}

/// A running process, one that has ended and a copy: one schema, and every key of it in all of them.
#[test]
fn the_schema_is_that_of_what_runs_and_of_what_has_ended() {
    let schema: Value = serde_json::from_str(include_str!("../../docs/heap.schema.json")).unwrap();
    let scratch = Scratch::new("schema");
    let file = scratch.join("stats.json");
    let Some(mut watched) = Watched::start(&[&format!("--stats={}", file.display())]) else { return };
    let mut all = vec![("unasked", watched.json(&["--no-ask"])), ("running", watched.json(&[]))];
    let copy = scratch.join("copy");
    fs::copy(format!("/proc/{}/fd/{}", watched.child.id(), board_descriptor(watched.child.id())), &copy).unwrap();
    all.push(("copy", serde_json::from_str(&done(&["stat", copy.to_str().unwrap(), "--json"])).unwrap()));
    writeln!(watched.input, "end").unwrap();
    assert!(watched.child.wait().unwrap().success());
    all.push(("ended", serde_json::from_slice(&fs::read(&file).unwrap()).unwrap()));
    for (what, object) in &all {
        conforms(&schema, object, what).unwrap_or_else(|wrong| panic!("{wrong}"));
        for name in schema["properties"].as_object().unwrap().keys() {
            assert!(object.get(name).is_some(), "{what} lacks {name}");
        }
        // Numbers of the same heap: it did nothing in between but answer.
        assert_eq!(object["memory"]["in_use_area_bytes"], all[1].1["memory"]["in_use_area_bytes"], "{what}");
    }
    assert_eq!((&all[1].1["process"]["status"], &all[3].1["process"]["status"]), (&Value::Null, &0.into()));
    assert!(all[1].1["process"]["resident"].is_u64() && all[3].1["process"]["resident"].is_null());
    assert!(all[0].1["zoneinfo"].is_null() && all[1].1["zoneinfo"].is_array());
    // And it is no schema of everything.
    let mut other = all[1].1.clone();
    other["memory"]["in_use"] = "much".into();
    assert!(conforms(&schema, &other, "").is_err());
    other = all[1].1.clone();
    other["memory"]["more"] = 1.into();
    assert!(conforms(&schema, &other, "").is_err());
    let section = serde_json::json!({"schema": 1});
    assert!(conforms(&schema, &section, "").is_err_and(|wrong| wrong.contains("missing")));
}

/// The descriptor of the board that `run --stats` holds.
fn board_descriptor(pid: u32) -> String {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(|entry| entry.unwrap());
    let is_board =
        |path: &Path| fs::read_link(path).is_ok_and(|link| link.to_string_lossy().contains("allotment-board"));
    let board = entries.into_iter().find(|entry| is_board(&entry.path())).expect("a board");
    board.file_name().into_string().unwrap()
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
    // Its file belongs to a namespace that is not ours to sweep.
    let link = fs::read_link(format!("/proc/{}/ns/pid", watched.pid)).unwrap();
    let namespace: String = link.to_str().unwrap().chars().filter(char::is_ascii_digit).collect();
    let file = PathBuf::from(format!("/dev/shm/allotment-{namespace}-{inner}"));
    done(&["stat"]);
    assert!(file.exists());
    drop(watched);
    let _ = fs::remove_file(file);
}

/// A terminal of our own, by tmux.
struct Screen {
    socket: PathBuf,
    tmux: PathBuf,
}

impl Screen {
    /// 80 × 24, with a shell command in it.
    fn open(tmux: PathBuf, scratch: &Scratch, command: &str) -> Self {
        let screen = Self { socket: scratch.join("socket"), tmux };
        screen.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", command]);
        screen
    }
    fn tmux(&self, words: &[&str]) -> Output {
        let mut command = Command::new(&self.tmux);
        command.arg("-u").arg("-S").arg(&self.socket).args(words);
        command.env("LC_ALL", "C.UTF-8").env_remove("TMUX").output().unwrap()
    }
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }
    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }
    /// Waits for a line with all of these words; the screen.
    #[track_caller]
    fn shows(&self, words: &[&str]) -> String {
        let begin = Instant::now();
        loop {
            let text = self.text();
            if text.lines().any(|line| words.iter().all(|word| line.contains(word))) {
                return text;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "no line with {words:?} in\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// The `top` that looks at a process.
fn top_of(watched: u32) -> u32 {
    let is_top = |pid: &u32| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.starts_with(&format!("{ALLOTMENT}\0top\0{watched}\0"))
    };
    let mut pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(is_top).expect("top runs")
}

/// Whoever reads a terminal that is gone reads nothing, at once and for ever; with SIGHUP, and without for one that is not of its session.
#[test]
fn top_ends_with_its_terminal() {
    let test = "top_ends_with_its_terminal";
    let Some(tmux) = need(test, "tmux", "tmux") else { return };
    let Some(setsid) = need(test, "setsid", "util-linux") else { return };
    for before in ["env".into(), setsid.display().to_string()] {
        let Some(watched) = Watched::start(&[]) else { return };
        let scratch = Scratch::new("gone");
        let command = format!("{before} {ALLOTMENT} top {} --interval 0.2; sleep 600", watched.pid);
        let screen = Screen::open(tmux.clone(), &scratch, &command);
        screen.shows(&["resident", "(peak"]);
        let top = top_of(watched.pid);
        drop(screen);
        // (Its new parent may take its time.)
        let state = || fs::read_to_string(format!("/proc/{top}/stat")).unwrap_or_default();
        until("its end", || state().rsplit_once(')').is_none_or(|(_, rest)| rest.starts_with(" Z")));
    }
}

/// The live view in a real terminal: panes, help, drain, purge, tune, pause; the terminal is put back, and the end of
/// the program is said.
#[test]
fn top_in_a_terminal() {
    let test = "top_in_a_terminal";
    let Some(tmux) = need(test, "tmux", "tmux") else { return };
    let Some(mut watched) = Watched::start(&[]) else { return };
    watched.tell("cache");
    let scratch = Scratch::new("top");
    // (What stands below tells that the shell has its terminal back.)
    let command = format!(
        "stty -a > {0}/before; {ALLOTMENT} top {1} --interval 0.2; echo ended with $?; stty -a > {0}/after; sleep 600",
        scratch.path().display(),
        watched.pid
    );
    let screen = Screen::open(tmux, &scratch, &command);
    screen.shows(&["allotment top", &watched.pid.to_string()]);
    let text = screen.shows(&["resident", "MiB (peak"]);
    for words in [
        &["in use"][..],
        &["cached for CPUs"],
        &["lazily freed", "6."],
        &["fast (of all)"],
        &["cached by CPU index"],
        &["cpu", "obj"],
        &["q quit", "d drain"],
    ] {
        assert!(text.lines().any(|line| words.iter().all(|word| line.contains(word))), "no {words:?} in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    screen.keys(&["h"]);
    screen.shows(&["drain every CPU's caches"]);
    screen.keys(&["h"]);
    screen.keys(&["d"]);
    screen.shows(&["drained", " from ", "answer"]);
    screen.keys(&["p"]);
    screen.shows(&["purged:", "given back; resident"]);
    screen.shows(&["lazily freed", " 0 B"]);
    screen.keys(&["t", "cache_floor=2M", "Enter"]);
    screen.shows(&["cache_floor: 1M → 2M"]);
    screen.keys(&["t", "cache_flor=2M", "Enter"]);
    screen.shows(&["no knob `cache_flor`"]);
    assert_eq!(watched.json(&["knobs"])["knobs"]["cache_floor"]["text"], "2M");
    screen.keys(&["2"]);
    screen.shows(&["size classes, by [bytes]"]);
    screen.shows(&[" 112 ", "5"]);
    screen.keys(&["s"]);
    screen.shows(&["[objects]"]);
    screen.keys(&["3"]);
    screen.shows(&["10.0 MiB", "busy"]);
    screen.keys(&["Tab"]);
    screen.shows(&["how long things took"]);
    screen.keys(&["Space"]);
    screen.shows(&["PAUSED"]);
    screen.keys(&["q"]);
    screen.shows(&["ended with 0"]);
    assert!(!screen.text().contains("allotment top"), "the screen was not put back\n{}", screen.text());
    let settings = |name: &str| fs::read_to_string(scratch.join(name)).unwrap_or_default();
    until("settings", || !settings("after").is_empty());
    assert_eq!(settings("before"), settings("after"));
    // A signal puts it back, too; and the program's end is said.
    let again = format!("{ALLOTMENT} top {} --interval 0.2; echo ended with $?; sleep 600", watched.pid);
    screen.tmux(&["respawn-pane", "-k", &again]);
    screen.shows(&["resident", "(peak"]);
    signal(top_of(watched.pid), "TERM");
    screen.shows(&["ended with 0"]);
    screen.tmux(&["respawn-pane", "-k", &again]);
    screen.shows(&["resident", "(peak"]);
    writeln!(watched.input, "end").unwrap();
    watched.child.wait().unwrap();
    screen.shows(&["has ended", "q quits"]);
    screen.keys(&["q"]);
    screen.shows(&["has ended"]);
    screen.shows(&["ended with 0"]);
}

/// Without colour, without UTF-8, on the plainest terminal that tmux can be: letters only.
#[test]
fn top_without_colour() {
    let test = "top_without_colour";
    let Some(tmux) = need(test, "tmux", "tmux") else { return };
    let Some(watched) = Watched::start(&[]) else { return };
    let scratch = Scratch::new("plain");
    let command =
        format!("env NO_COLOR=1 TERM=vt100 LC_ALL=C {ALLOTMENT} top {} --interval 0.2; sleep 600", watched.pid);
    let screen = Screen::open(tmux, &scratch, &command);
    screen.shows(&["resident", "(peak"]);
    let text = String::from_utf8_lossy(&screen.tmux(&["capture-pane", "-p", "-e"]).stdout).into_owned();
    assert!(text.is_ascii(), "{text}");
    let colours: Vec<&str> = text.match_indices("\x1b[3").map(|(at, _)| &text[at..(at + 8).min(text.len())]).collect();
    assert!(colours.iter().all(|code| code.starts_with("\x1b[39")), "{colours:?}");
    screen.keys(&["q"]);
}

#[test]
fn top_wants_a_terminal_and_a_process() {
    let Some(watched) = Watched::start(&[]) else { return };
    watched.fails("top", &[], 1, &["terminal", "--watch"]);
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
