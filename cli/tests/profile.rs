//! The heap profile: programs that say themselves what they allocate where, and what the profile says of them.

use crate::common::{
    ALLOTMENT, BOTH, Mode, Program, Scratch, compile, copy_program, find, long, modes, need, program, skip,
};
use allotment_engine::stat::profile::VERSION;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A stack of the text: bytes in use and allocated, and its functions, innermost first.
#[derive(Debug)]
struct Stack {
    live: f64,
    allocated: f64,
    functions: Vec<String>,
}

/// `1.5 KiB` in bytes.
fn bytes(words: &[&str]) -> f64 {
    let unit = match words[1] {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        other => panic!("unit {other}"),
    };
    words[0].parse::<f64>().unwrap() * f64::from(1_u32 << unit)
}

/// The stacks of a report.
fn stacks(text: &str) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(at) = words.iter().position(|&word| word == "allocated")
            && line.contains(" % in ")
        {
            stacks.push(Stack { live: bytes(&words), allocated: bytes(&words[at + 1..]), functions: Vec::new() });
        } else if let (Some(stack), Some(name)) = (stacks.last_mut(), line.strip_prefix("           ")) {
            stack.functions.push(name.split("  ").next().unwrap().to_owned());
        }
    }
    stacks
}

/// Allocated and in use at stacks through a function, with the number of them.
fn at(stacks: &[Stack], function: &str) -> (f64, f64, usize) {
    let found = stacks.iter().filter(|stack| stack.functions.iter().any(|name| name == function));
    found.fold((0.0, 0.0, 0), |(allocated, live, n), stack| (allocated + stack.allocated, live + stack.live, n + 1))
}

/// Compares what a program said of its sites with a report, of samples every `mean` bytes. Only a `whole` report has
/// those of which nothing is in use.
#[track_caller]
fn agree(said: &str, report: &str, mean: f64, whole: bool) {
    let stacks = stacks(report);
    let mut sites = 0;
    for line in said.lines().filter(|line| line.starts_with("site_")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (allocated, live) = (words[1].parse::<f64>().unwrap(), words[2].parse::<f64>().unwrap());
        let (found_allocated, found_live, n) = at(&stacks, words[0]);
        assert!(n > 0 && n < 10, "{line}: {n} stacks\n{report}");
        for (wanted, found) in
            [(live, found_live), (allocated, found_allocated)].into_iter().take(1 + usize::from(whole))
        {
            // Five standard deviations of so many samples, and a digit that the text leaves out.
            let slack = 5.0 * (wanted * mean.max(1.0)).sqrt() * f64::from(u8::from(mean > 1.0)) + wanted * 0.05;
            assert!((wanted - found).abs() <= slack, "{line}: {found} and not {wanted} ± {slack}\n{report}");
        }
        sites += 1;
    }
    assert!(sites > 0, "{said}");
}

#[test]
fn sites_are_found_with_their_amounts() {
    let Some(program) = program("profile.c") else { return };
    for mode in modes(&[Mode::Auto, Mode::Fallback, Mode::Unregistered, Mode::Tiny]) {
        for (mean, knob) in [(8192.0, "profile_bytes=8K"), (1.0, "profile_bytes=1")] {
            for what in ["sites", "threads", "handler", "alternate"] {
                let done = leaks(mode, knob, &[&program, what]);
                agree(&done.0, &done.1, mean, false);
                if what == "handler" || what == "alternate" {
                    let stacks = stacks(&done.1);
                    let through = stacks.iter().find(|stack| stack.functions.iter().any(|name| name == "site_handler"));
                    let functions = &through.unwrap().functions;
                    assert!(functions.iter().any(|name| name == "main"), "not through the handler: {functions:?}");
                }
            }
        }
    }
}

/// Runs a program under `run --profile`, and reads the profile's text; what it said, and the report.
fn leaks(mode: Mode, knob: &str, words: &[&str]) -> (String, String) {
    let scratch = Scratch::new("profile");
    let done = Program::new(mode, words).knob(knob).within(scratch.path()).leaks().run().passed();
    (done.out, done.err)
}

#[test]
fn stripped_cxx_without_frame_pointers() {
    let Some(program) = compile("profile.cpp", "profile_cxx", &["-O2", "-fomit-frame-pointer", "-g0", "-rdynamic"])
    else {
        return;
    };
    if need("stripped_cxx", "strip", "binutils").is_none() {
        return;
    }
    let scratch = Scratch::new("stripped");
    let stripped = scratch.join("stripped");
    // The dynamic symbols stay: they name what is found.
    assert!(Command::new("strip").arg("-o").arg(&stripped).arg(&program).status().unwrap().success());
    for &mode in BOTH {
        let (_, report) = leaks(mode, "profile_bytes=4K", &[stripped.to_str().unwrap()]);
        let stacks = stacks(&report);
        let (allocated, live, _) = at(&stacks, "shop::Shelf::fill(int)");
        // 20,000 strings of 1,001 bytes, 32 each for themselves, and their growing vector.
        let strings = 20_000.0 * 1033.0;
        assert!(allocated > strings * 0.85 && live < strings * 1.2, "{report}");
        let deep =
            stacks.iter().find(|stack| stack.functions.iter().any(|name| name == "shop::deep(shop::Shelf&, int)"));
        let deep = deep.unwrap_or_else(|| panic!("{report}"));
        let levels = deep.functions.iter().filter(|name| name.starts_with("shop::deep")).count();
        assert_eq!(levels, 21, "{report}");
        assert!(deep.functions.iter().any(|name| name == "main" || name.starts_with("stripped+")), "{report}");
    }
}

#[test]
fn a_program_in_python() {
    let Some(python) = need("python", "python3", "python3") else { return };
    // Ends without taking anything down.
    let script = "import os; kept = [bytearray(3000) for _ in range(20000)]; print(len(kept), flush=True); os._exit(0)";
    let (said, report) = leaks(Mode::Auto, "profile_bytes=64K", &[python.to_str().unwrap(), "-c", script]);
    assert!(said.contains("20000"));
    let stacks = stacks(&report);
    assert!(!stacks.is_empty(), "{report}");
    let allocated: f64 = stacks.iter().map(|stack| stack.allocated).sum();
    assert!(allocated > 40e6, "{report}");
    // From the interpreter's end to its beginning.
    assert!(stacks[0].functions.len() > 5, "{report}");
}

/// A program that waits for the end of its input.
struct Waiting {
    child: Child,
    said: Vec<String>,
}

impl Waiting {
    fn start(knobs: &[&str], words: &[&str], last: &str) -> Self {
        let mut command = Command::new(ALLOTMENT);
        command.arg("run");
        for knob in knobs {
            command.args(["--set", knob]);
        }
        command.arg("--").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            said.push(line.unwrap());
            if said.last().unwrap().starts_with(last) {
                break;
            }
        }
        Self { child, said }
    }
    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// What the command says of a process or file: its text, or its one line.
fn asked(words: &[&str]) -> Result<String, String> {
    let done = Command::new(ALLOTMENT).arg("profile").args(words).output().unwrap();
    if done.status.success() {
        return Ok(String::from_utf8(done.stdout).unwrap());
    }
    let line = String::from_utf8(done.stderr).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    Err(line)
}

#[test]
fn a_running_process_is_read_from_outside() {
    let Some(program) = program("profile.c") else { return };
    let waiting = Waiting::start(&["profile_bytes=8K"], &[&program, "wait"], "site_grown");
    let pid = waiting.child.id().to_string();
    let report = asked(&[&pid]).unwrap();
    agree(&waiting.said.join("\n"), &report, 8192.0, true);
    assert!(report.contains("profile.c:"), "no lines\n{report}");
    let leaks = asked(&[&pid, "--leaks"]).unwrap();
    assert!(leaks.contains("still in use"), "{leaks}");
    // Nothing happens meanwhile.
    let nothing = asked(&[&pid, "--seconds", "1"]).unwrap();
    assert!(stacks(&nothing).is_empty(), "{nothing}");
    let scratch = Scratch::new("pprof");
    let file = scratch.join("heap.pb.gz");
    asked(&[&pid, "-o", file.to_str().unwrap()]).unwrap();
    let name = shown_file(&pid);
    assert!(Path::new(&name).exists());
    waiting.end();
    assert!(!Path::new(&name).exists(), "{name} is left behind");
    assert!(asked(&[&pid]).unwrap_err().contains("no process"));
    read_by_pprof(&file);
}

/// On, and off again, while it runs: what is allocated in between is seen, and what it leaves is followed.
#[test]
fn a_running_process_is_switched_on_and_off() {
    let Some(program) = program("profile.c") else { return };
    for mode in ["mode=auto", "mode=fallback"] {
        let mut child = Command::new(ALLOTMENT)
            .args(["run", "--set", mode, "--", &program, "ask"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let pid = child.id().to_string();
        let mut ask = || {
            input.write_all(b"\n").unwrap();
            output.read_line(&mut line).unwrap();
            assert!(line.ends_with("done\n"), "{line}");
        };
        let tune =
            |setting: &str| Command::new(ALLOTMENT).args(["tune", &pid, setting]).output().unwrap().status.success();
        // Its keeper, which does what is asked, starts when it has worked for a moment.
        let is_served = (0..100).any(|_| {
            ask();
            tune("idle_seconds=5")
        });
        assert!(is_served);
        assert!(asked(&[&pid]).unwrap_err().contains("tune"));
        assert!(tune("profile_bytes=4K"));
        ask();
        assert!(tune("profile_bytes=0"));
        ask();
        let report = asked(&[&pid]).unwrap();
        assert!(report.contains("off now"), "{report}");
        let (allocated, live, _) = at(&stacks(&report), "site_middle");
        assert!((allocated - 10e6).abs() < 2e6 && (live - 10e6).abs() < 2e6, "{report}");
        drop(input);
        assert!(child.wait().unwrap().success());
        assert!(!Path::new(&shown_file(&pid)).exists());
    }
}

/// Where a process of this namespace shows its samples.
fn shown_file(pid: &str) -> String {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let number: String = link.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    format!("/dev/shm/allotment-{number}-{pid}.heap")
}

/// Whether pprof can be asked. Since version 1.25 Go builds it when it is first asked for, in a minute: in long runs.
fn has_pprof() -> bool {
    if find("go").is_none() {
        skip("pprof", "no go here (Debian package golang)");
        return false;
    }
    let tools = Command::new("go").args(["env", "GOTOOLDIR"]).output().unwrap().stdout;
    let is_built = Path::new(String::from_utf8(tools).unwrap().trim()).join("pprof").exists();
    if !is_built && !long() {
        skip("pprof", "this go would build it first: with ALLOTMENT_TEST_LONG=1");
    }
    is_built || long()
}

/// What pprof says of a file, if it can be asked. (One at a time: two would both build it.)
fn by_pprof(file: &Path, words: &[&str]) -> Option<String> {
    static BUILDS: Mutex<()> = Mutex::new(());
    if !has_pprof() {
        return None;
    }
    let _one = BUILDS.lock().unwrap_or_else(PoisonError::into_inner);
    let done = Command::new("go").args(["tool", "pprof", "-top"]).args(words).arg(file).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    if text.is_empty() {
        skip("pprof", &String::from_utf8_lossy(&done.stderr));
    }
    (!text.is_empty()).then_some(text)
}

fn read_by_pprof(file: &Path) {
    let Some(text) = by_pprof(file, &["-sample_index=inuse_space", "-unit=b"]) else { return };
    let line = text.lines().find(|line| line.ends_with("site_middle")).unwrap_or_else(|| panic!("{text}"));
    let flat: f64 = line.split_whitespace().next().unwrap().trim_end_matches('B').parse().unwrap();
    assert!((flat - 15e6).abs() < 3e6, "{text}");
    assert!(text.lines().any(|line| line == "File: profile"), "the first mapping is not the program's\n{text}");
}

/// What allocates is the program, not `operator new` or an allocator class; and the program is the first mapping.
#[test]
fn pprof_is_told_of_the_program() {
    let Some(program) = compile("profile.cpp", "profile_new", &["-O0", "-g"]) else { return };
    let scratch = Scratch::new("new");
    let file = scratch.join("heap.pb.gz");
    let save = format!("--profile={}", file.display());
    let words = ["run", &save, "--set", "profile_bytes=4K", "--", program.to_str().unwrap()];
    assert!(Command::new(ALLOTMENT).args(words).output().unwrap().status.success());
    let text = asked(&[file.to_str().unwrap()]).unwrap();
    for stack in stacks(&text) {
        let first = &stack.functions[0];
        let of_allocators = ["operator new", "std::__new_allocator<", "std::allocator", "std::_Vector_base<"];
        assert!(!of_allocators.iter().any(|prefix| first.starts_with(prefix)), "{first}\n{text}");
    }
    let Some(top) = by_pprof(&file, &["-sample_index=alloc_space"]) else { return };
    assert!(top.lines().any(|line| line == "File: profile_new"), "{top}");
    assert!(!top.contains("operator new") && top.contains("shop::deep"), "{top}");
}

/// Folded stacks, a drawing, pprof's file read back, and what there is more of than before.
#[test]
fn profiles_are_drawn_and_compared() {
    let Some(program) = program("profile.c") else { return };
    let scratch = Scratch::new("drawn");
    let path = |name: &str| scratch.join(name).to_str().unwrap().to_owned();
    let mut child = Command::new(ALLOTMENT)
        .args(["run", "--set", "profile_bytes=1", "--", &program, "ask"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let mut ask = || {
        input.write_all(b"\n").unwrap();
        output.read_line(&mut line).unwrap();
    };
    ask();
    let (before, folded) = (path("before.pb.gz"), path("before.folded"));
    assert_eq!(asked(&[&pid, "-o", &before, "--folded", &folded]).unwrap(), "");
    let sum = |text: &str, number: usize| -> f64 {
        let numbers = text.lines().filter(|line| line.contains(";site_middle "));
        numbers.map(|line| line.rsplit(' ').nth(number).unwrap().parse::<f64>().unwrap()).sum()
    };
    let text = std::fs::read_to_string(&folded).unwrap();
    let one = sum(&text, 0);
    assert!((one - 10e6).abs() < 1e6, "{text}");
    assert!(text.lines().all(|line| line.starts_with("_start;") || !line.contains("main;")), "{text}");
    // The file in pprof's format says the same.
    assert_eq!(asked(&[&before, "--folded", "-"]).unwrap(), text);
    let report = asked(&[&before]).unwrap();
    assert!((at(&stacks(&report), "site_middle").1 - one).abs() < 1e5, "{report}");
    ask();
    let more = asked(&[&pid, "--diff", &before, "--folded", "-", "--flamegraph", &path("more.svg")]).unwrap();
    assert!((sum(&more, 1) - one).abs() < 1.0 && (sum(&more, 0) - 2.0 * one).abs() < 1e5, "{more}");
    let report = asked(&[&pid, "--diff", &before]).unwrap();
    assert!(report.contains(&format!("more than {before}")) && report.contains("site_middle"), "{report}");
    assert!(asked(&[&pid, "--flamegraph", &path("now.svg")]).unwrap().is_empty());
    for name in ["now.svg", "more.svg"] {
        let drawing = std::fs::read_to_string(scratch.join(name)).unwrap();
        assert!(drawing.contains("<svg") && drawing.contains("site_middle"), "{name}");
    }
    // It knows neither process nor samples; and of a difference, what became less is called so.
    assert_eq!(
        report.lines().next().unwrap(),
        format!("heap profile: {pid} less {before} (process {pid}; every allocation)")
    );
    assert_eq!(asked(&[&before]).unwrap().lines().next().unwrap(), format!("heap profile: {before}"));
    let later = path("later.pb.gz");
    asked(&[&pid, "-o", &later]).unwrap();
    let report = asked(&[&before, "--diff", &later]).unwrap();
    assert!(report.contains(&format!("in 2,000 objects less than {later}; allocated ")), "{report}");
    // Nothing is more than itself.
    let none = asked(&[&before, "--diff", &before]).unwrap();
    assert!(stacks(&none).is_empty() && none.contains("in use 0 B in 0 objects"), "{none}");
    // Standard output, and a full disk.
    let done = Command::new(ALLOTMENT).args(["profile", &pid, "-o", "-"]).output().unwrap();
    assert_eq!(done.stdout[..2], [0x1f, 0x8b]);
    assert!(!Path::new("-").exists());
    for option in ["-o", "--folded", "--flamegraph"] {
        assert!(asked(&[&pid, option, "/dev/full"]).unwrap_err().contains("No space left"), "{option}");
        // What cannot be written leaves what was there, and nothing beside it.
        let older = scratch.join("older");
        std::fs::create_dir_all(&older).unwrap();
        std::fs::write(older.join("file"), "an older one").unwrap();
        let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" profile \"$@\"";
        let file = older.join("file");
        let words = ["-c", script, ALLOTMENT, &pid, option, file.to_str().unwrap()];
        let done = Command::new("sh").args(words).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(1) && said.contains("File too large"), "{option}: {said}");
        assert_eq!(std::fs::read_to_string(older.join("file")).unwrap(), "an older one", "{option}");
        assert_eq!(std::fs::read_dir(&older).unwrap().count(), 1, "{option}");
        // A standard output that is closed is said, and a reader that has gone is no failure.
        let script = format!("exec '{ALLOTMENT}' profile {pid} {option} - >&-");
        let done = Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(said, "allotment: cannot write: standard output is closed\n", "{option}");
        assert_eq!(done.status.code(), Some(1), "{option}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = Command::new(ALLOTMENT).args(["profile", &pid, option, "-"]).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && said.is_empty(), "{option}: {said}");
    }
    // No place takes two things.
    let (same, also) = (path("same"), scratch.path().join("./same"));
    for words in [
        &["-o", "-", "--leaks"][..],
        &["-o", "-", "--folded", "-"],
        &["--folded", "-", "--text"],
        &["--folded", &same, "--flamegraph", also.to_str().unwrap()],
    ] {
        let done = Command::new(ALLOTMENT).args(["profile", &pid]).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(2) && said.contains("room for one thing"), "{words:?}: {said}");
        assert!(done.stdout.is_empty() && !Path::new(&same).exists(), "{words:?}");
    }
    assert!(asked(&[&before, "-o", &path("again")]).unwrap_err().contains("pprof's format"));
    let mut cut = std::fs::read(&before).unwrap();
    cut.truncate(cut.len() / 2);
    std::fs::write(path("cut"), cut).unwrap();
    assert!(asked(&[&path("cut")]).unwrap_err().contains("damaged"));
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_forked_child_has_a_profile_of_its_own() {
    let Some(program) = program("profile.c") else { return };
    for mode in ["mode=auto", "mode=fallback"] {
        let waiting = Waiting::start(&["profile_bytes=4K", mode], &[&program, "fork"], "child");
        let child = waiting.said.last().unwrap().split(' ').nth(1).unwrap().to_owned();
        let (of_parent, of_child) = (asked(&[&waiting.child.id().to_string()]).unwrap(), asked(&[&child]).unwrap());
        let (of_parent, of_child) = (stacks(&of_parent), stacks(&of_child));
        let (allocated, live, _) = at(&of_child, "site_child");
        assert!((allocated - 4e6).abs() < 1.2e6 && (live - 2e6).abs() < 0.8e6, "{of_child:?}");
        assert_eq!(at(&of_child, "site_middle").2, 0, "{of_child:?}");
        let (allocated, live, _) = at(&of_parent, "site_middle");
        assert!((allocated - 10e6).abs() < 2e6 && (live - 10e6).abs() < 2e6, "{of_parent:?}");
        assert_eq!(at(&of_parent, "site_child").2, 0, "{of_parent:?}");
        waiting.end();
        assert!(!Path::new(&shown_file(&child)).exists());
    }
}

#[test]
fn a_program_that_is_killed_leaves_its_profile_to_run() {
    let Some(program) = program("profile.c") else { return };
    let scratch = Scratch::new("killed");
    let done =
        Program::new(Mode::Auto, &[&program, "kill"]).knob("profile_bytes=8K").within(scratch.path()).leaks().run();
    let done = done.killed(9);
    agree(&done.out, &done.err, 8192.0, false);
}

/// What a program had in use when it became another one is no leak of that one; nor are samples of it.
#[test]
fn what_was_there_before_an_exec_is_no_leak() {
    let Some(program) = program("profile.c") else { return };
    let scratch = Scratch::new("before");
    for what in ["exec", "leave"] {
        let (_, said) = leaks(Mode::Auto, "profile_bytes=8K", &[&program, what]);
        assert!(said.contains("is of the program before its last exec") && !said.contains("still in use"), "{said}");
        let file = scratch.join(what);
        let save = format!("--profile={}", file.display());
        let done = Command::new(ALLOTMENT).args(["run", &save, "--", &program, what]).output().unwrap();
        assert!(done.status.success() && asked(&[file.to_str().unwrap()]).unwrap().contains("site_middle"));
    }
    // Of the one that it became there is what that one did.
    let script = format!("exec {program} sites");
    let (said, report) = leaks(Mode::Auto, "profile_bytes=8K", &["sh", "-c", &script]);
    agree(&said, &report, 8192.0, false);
}

#[test]
fn a_sampled_object_freed_twice_is_reported() {
    let Some(program) = program("profile.c") else { return };
    Program::new(Mode::Auto, &[&program, "twice"])
        .knob("profile_bytes=1")
        .run()
        .ended(0)
        .says(&["free(", "left alone"]);
}

#[test]
fn what_is_no_profile_is_said_in_one_line() {
    let scratch = Scratch::new("foreign");
    let file = scratch.join("x");
    let head = |version: u32| [b"ALOTHEAP", &u64::from(version).to_ne_bytes()[..]].concat();
    for (content, words) in [
        (vec![], "no heap profile"),
        (vec![b'x'; 10_000], "no heap profile"),
        (head(VERSION), "cut short"),
        (head(!VERSION), "made by another version"),
    ] {
        std::fs::write(&file, content).unwrap();
        let line = asked(&[file.to_str().unwrap()]).unwrap_err();
        assert!(line.contains(words), "{line}");
    }
    assert!(asked(&[scratch.join("none").to_str().unwrap()]).unwrap_err().contains("No such file"));
    assert!(asked(&["4194305"]).unwrap_err().contains("no process"));
    // This very process, which does not run on Allotment.
    assert!(asked(&[&std::process::id().to_string()]).unwrap_err().contains("profile_bytes"));
}

/// The notes that tracers look for, with the arguments of OpenTelemetry's contract.
#[test]
fn probes_are_noted() {
    if need("probes", "readelf", "binutils").is_none() {
        return;
    }
    let said = Command::new(ALLOTMENT).args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]).output().unwrap().stdout;
    let library = String::from_utf8(said).unwrap().trim().split(':').next().unwrap().to_owned();
    let notes = Command::new("readelf").args(["-nW", &library]).output().unwrap().stdout;
    let notes = String::from_utf8(notes).unwrap();
    for (name, arguments) in [("alloc", "8@%rdi 8@%rsi 8@%rdx"), ("free", "8@%rdi")] {
        let from = notes.find(&format!("Name: {name}\n")).unwrap_or_else(|| panic!("{notes}"));
        let arguments_at = notes[from..].find("Arguments:").unwrap() + from;
        let note = &notes[from..arguments_at + notes[arguments_at..].find('\n').unwrap_or(notes.len() - arguments_at)];
        assert!(notes[..from].trim_end().ends_with("Provider: otel_memory"), "{notes}");
        assert!(note.ends_with(&format!("Arguments: {arguments}")), "{note}");
        assert!(
            !note.contains("Semaphore: 0x0000000000000000") && !note.contains("Base: 0x0000000000000000"),
            "{note}"
        );
    }
}

/// A debugger stops at the probes while their semaphores, which it raises, switch sampling on.
#[test]
fn a_debugger_sees_samples() {
    if need("probes", "gdb", "gdb").is_none() {
        return;
    }
    let Some(program) = program("profile.c") else { return };
    let said = Command::new(ALLOTMENT).args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]).output().unwrap().stdout;
    let library = String::from_utf8(said).unwrap().trim().split(':').next().unwrap().to_owned();
    let script = [
        "set pagination off".to_owned(),
        "set debuginfod enabled off".to_owned(),
        "set breakpoint pending on".to_owned(),
        "set startup-with-shell off".to_owned(),
        format!("set environment LD_PRELOAD {library}"),
        "break main".to_owned(),
        "run".to_owned(),
        "break -probe-stap otel_memory:alloc".to_owned(),
        "break -probe-stap otel_memory:free".to_owned(),
        "continue".to_owned(),
        "printf \"alloc %lu %lu\\n\", (unsigned long)$_probe_arg1, (unsigned long)$_probe_arg2".to_owned(),
        "backtrace".to_owned(),
        "ignore 2 1000000".to_owned(),
        "continue".to_owned(),
        "printf \"free %d\\n\", (int)($_probe_arg0 != 0)".to_owned(),
        "kill".to_owned(),
    ];
    let mut command = Command::new("gdb");
    command.args(["-batch", "-nx"]);
    script.iter().for_each(|line| _ = command.args(["-ex", line]));
    let mut child =
        command.args(["--args", &program, "sites"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    if text.contains("ptrace") || !status.success() {
        return skip("probes", "gdb cannot run programs here");
    }
    // Every half a MiB or so: the sizes of the sites, each with its weight.
    let words: Vec<&str> = text
        .lines()
        .find_map(|line| line.strip_prefix("alloc "))
        .unwrap_or_else(|| panic!("{text}"))
        .split(' ')
        .collect();
    let (size, weight): (f64, f64) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    let wanted = size / -(-size / 524_288.0).exp_m1();
    assert!((weight - wanted).abs() <= 1.0 + wanted * 1e-6, "{text}");
    assert!(text.contains("site_") && text.contains("free 1"), "{text}");
}

/// Names are a stranger's: what a terminal would obey is not printed, whoever is called so.
#[test]
fn names_do_not_steer_the_terminal() {
    let Some(program) = program("profile.c") else { return };
    let scratch = Scratch::new("escapes");
    let path = scratch.join("p\x1b[2J\x1b]0;title\x07\u{9b}1m\u{202e}x");
    copy_program(&program, &path);
    let name = path.to_str().unwrap();
    let is_tame =
        |text: &str| text.chars().all(|letter| letter == '\n' || !letter.is_control() && letter != '\u{202e}');
    let (_, report) = leaks(Mode::Auto, "profile_bytes=8K", &[name, "sites"]);
    assert!(report.contains("p?[2J") && is_tame(&report), "{report:?}");
    let output = Command::new(ALLOTMENT).args(["run", "--stats", "--", name, "sites"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("p?[2J") && is_tame(&said), "{said:?}");
    let output = Command::new(ALLOTMENT).args(["run", "--", &format!("{name}-none")]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("p?[2J") && is_tame(&said), "{said:?}");
    let waiting = Waiting::start(&["profile_bytes=8K"], &[name, "wait"], "site_grown");
    let pid = waiting.child.id().to_string();
    for words in [&["profile", &pid][..], &["stat", &pid], &["stat"], &["stat", &pid, "--openmetrics"]] {
        let output = Command::new(ALLOTMENT).args(words).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && is_tame(&text), "{words:?} {text:?}");
    }
    waiting.end();
}
