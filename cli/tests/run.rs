//! `allotment run`: what goes through it untouched, what it says, and that the
//! statistics come whatever way a program ends.

use crate::common::{
    ALLOTMENT, BOTH, Mode, Program, Scratch, copy_program, find, modes, need, preloaded, program, skip, stop_group,
};
use allotment_engine::knob::TABLE;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

fn sh(script: &str) -> Program {
    Program::new(Mode::Auto, &["sh", "-c", script])
}

/// Stands for: the text of the statistics is there.
const STATISTICS: &str = "operations";

#[test]
fn exit_codes_pass_through() {
    for code in [0, 1, 3, 77, 125, 126, 127, 255] {
        sh(&format!("exit {code}")).run().ended(code).took(Mode::Auto, 1);
        sh(&format!("exit {code}")).without_stats().run().ended(code);
    }
}

#[test]
fn deaths_by_signal_pass_through() {
    for signal in [1, 2, 6, 9, 11, 13, 15] {
        let script = format!("ulimit -c 0; kill -{signal} $$");
        sh(&script).run().killed(signal).took(Mode::Auto, 1);
        sh(&script).without_stats().run().killed(signal);
    }
}

/// How a script ends that says that it is ready and then gets a signal by way of the command; it left statistics.
fn signalled(number: i32, before: &str) -> std::process::ExitStatus {
    let scratch = Scratch::new("signal");
    let ready = scratch.join("ready");
    let script = format!("{before}; echo > {}; while :; do sleep 0.01; done", ready.display());
    let mut child = sh(&script).start(&scratch.join("out"), &scratch.join("stats.json"));
    while !ready.exists() {
        assert!(child.try_wait().unwrap().is_none(), "signal {number}");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let sent = Command::new("kill").args([&format!("-{number}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let status = child.wait().unwrap();
    assert!(scratch.join("stats.json").metadata().unwrap().len() > 0, "signal {number}: no statistics");
    status
}

/// A signal sent to the command reaches the program.
#[test]
fn signals_are_passed_on() {
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("USR1", 10)] {
        let status = signalled(number, &format!("trap 'exit 42' {name}"));
        assert_eq!(status.code(), Some(42), "SIG{name}: {status}");
    }
}

/// A signal that is passed on may kill: the program ends as it would alone.
#[test]
fn signals_that_are_passed_on_may_kill() {
    for (name, number) in [("TERM", 15), ("HUP", 1), ("USR2", 12), ("ABRT", 6)] {
        let status = signalled(number, "ulimit -c 0");
        assert_eq!(status.signal(), Some(number), "SIG{name}: {status}");
    }
}

/// A stop of the program is a stop of the job, and what continues it continues both.
#[test]
fn stops_and_continues_are_passed_on() {
    let state = |id: &str| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    let scratch = Scratch::new("stop");
    let ready = scratch.join("ready");
    let script = format!(
        "trap 'exit 42' USR1; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 0.01; done",
        ready.display()
    );
    let mut child = sh(&script).start(&scratch.join("out"), &scratch.join("stats.json"));
    let until = |what: &str, condition: &dyn Fn() -> bool| {
        let begin = std::time::Instant::now();
        while !condition() {
            if begin.elapsed().as_secs() > 60 {
                stop_group(child.id());
                panic!("{what} never came");
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    };
    until("the program", &|| ready.exists());
    let (command, program) = (child.id().to_string(), fs::read_to_string(&ready).unwrap().trim().to_owned());
    let send = |signal: &str| assert!(Command::new("kill").args([signal, &command]).status().unwrap().success());
    send("-TSTP");
    until("the stop", &|| state(&program) == Some('T') && state(&command) == Some('T'));
    send("-CONT");
    until("the continuation", &|| state(&program) != Some('T') && state(&command) != Some('T'));
    send("-USR1");
    assert_eq!(child.wait().unwrap().code(), Some(42));
}

/// What was ignored before stays so, in the program too; what was not, is not.
#[test]
fn dispositions_are_inherited() {
    for stats in [&["--stats"][..], &[]] {
        let with = |before: &str| {
            let script = format!("{before} exec \"$@\"");
            let program = ["sh", "-c", "kill -HUP $$; exit 3"];
            let mut command = Command::new("sh");
            command.args(["-c", &script, "sh", ALLOTMENT, "run"]).args(stats).arg("--").args(program);
            command.output().unwrap().status
        };
        assert_eq!(with("trap '' HUP;").code(), Some(3), "{stats:?}");
        assert_eq!(with("").signal(), Some(1), "{stats:?}");
    }
}

#[test]
fn missing_and_unexecutable_programs() {
    for stats in [true, false] {
        let with = |words: &[&str]| {
            let program = Program::new(Mode::Auto, words);
            if stats { program } else { program.without_stats() }
        };
        let done = with(&["/nonexistent/program", "x"]).run().ended(127).says(&["allotment", "/nonexistent/program"]);
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
        let done = with(&["no-such-program-anywhere"]).run().ended(127).says(&["no-such-program-anywhere"]);
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
        let done = with(&["/etc/passwd"]).run().ended(126).says(&["/etc/passwd"]);
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
        with(&["/"]).run().ended(126);
    }
}

#[test]
fn streams_and_arguments_pass_through() {
    let mut bytes: Vec<u8> = (0..=255).collect();
    bytes = bytes.repeat(4000);
    let done = Program::new(Mode::Auto, &["sha256sum"]).input(&bytes).run().ended(0);
    let plain = Program::new(Mode::Plain, &["sha256sum"]).input(&bytes).run().ended(0);
    assert_eq!(done.out, plain.out);
    let done = sh("cat; echo error >&2").input(b"through\n").run().ended(0).says(&["error"]);
    assert_eq!(done.out, "through\n");
    let odd = ["printf", "<%s>", "", "--stats", "a b", "*", "-x", "--", "ü", "'", "\n"];
    let done = Program::new(Mode::Auto, &odd).run().ended(0);
    assert_eq!(done.out, "<><--stats><a b><*><-x><--><ü><'><\n>");
    // The environment gains ours and loses nothing.
    let done =
        sh("echo $ALLOTMENT_TEST_WORD; pwd").set("ALLOTMENT_TEST_WORD", "kept").within("/".as_ref()).run().ended(0);
    assert_eq!(done.out, "kept\n/\n");
}

/// The command stays: its child is the program itself, not a process between them.
#[test]
fn run_stays_as_the_parent() {
    let scratch = Scratch::new("parent");
    let script = "read -r name < /proc/$PPID/comm; echo $name $PPID; exec cat /proc/$$/stat > stat";
    let mut child = sh(script).within(scratch.path()).start(&scratch.join("out"), &scratch.join("stats.json"));
    let id = child.id();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read_to_string(scratch.join("out")).unwrap(), format!("allotment {id}\n"));
    let stat = fs::read_to_string(scratch.join("stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // State, parent, group: the group is that of the command.
    assert_eq!(fields[1..3], [id.to_string(), id.to_string()], "{stat}");
}

/// Standard error gets the statistics, whatever the program did with its own.
#[test]
fn statistics_come_whatever_the_end() {
    let endings = [
        ("exit 0", Some(0)),
        ("exec >&- 2>&- <&-; exit 4", Some(4)),
        ("kill -KILL $$", None),
        ("ulimit -c 0; kill -SEGV $$", None),
        ("exec sh -c 'exec sh -c \"exit 6\"'", Some(6)),
        ("true & wait; exec false", Some(1)),
    ];
    for (script, code) in endings {
        let output = Command::new(ALLOTMENT).args(["run", "--stats", "--", "sh", "-c", script]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), code, "{script}\n{error}");
        assert!(error.contains(STATISTICS) && error.contains("mode"), "{script}\n{error}");
        assert!(output.stdout.is_empty(), "{script}");
    }
}

#[test]
fn statistics_are_those_of_the_last_program() {
    let Some(_) = need("statistics_are_those_of_the_last_program", "perl", "perl-base") else { return };
    let count = |script: &str| sh(script).run().ended(0).number("/operations/allocs");
    let work = "perl -e 'my %h; $h{$_} = \"x$_\" for 1..50000; print scalar keys %h'";
    let (shell, last, forked) = (count("echo"), count(&format!("exec {work}")), count(&format!("{work}; echo")));
    assert!(last > 50_000, "{last}");
    // What children do is theirs.
    assert!(forked < shell + 10_000, "{forked} {shell}");
}

#[test]
fn statistics_of_abrupt_ends() {
    let Some(life) = program("life.c") else { return };
    let life = life.as_str();
    for mode in modes(BOTH) {
        Program::new(mode, &[life, "leave_at_once"]).run().ended(5).took(mode, 10);
        Program::new(mode, &["sh", "-c", "ulimit -c 0; exec \"$0\" abort", life]).run().killed(6).took(mode, 10);
        // Two levels of exec, by a shell and by python if there is one.
        let script = "exec sh -c 'exec \"$0\" exit_under_load' \"$0\"";
        Program::new(mode, &["sh", "-c", script, life]).run().ended(0).took(mode, 1000);
    }
}

#[test]
fn mode_is_said() {
    let unregistered = std::env::var("GLIBC_TUNABLES").is_ok_and(|tunables| tunables.contains("rseq=0"));
    for mode in modes(&[Mode::Fallback, Mode::Unregistered]) {
        assert_eq!(Program::new(mode, &["true"]).run().ended(0).word("/mode"), "fallback");
    }
    if preloaded() && !unregistered {
        let done = Program::new(Mode::Auto, &["true"]).run().ended(0);
        let mode = done.word("/mode");
        if mode != "sequences" {
            skip("mode_is_said", &format!("this machine has no sequences: {}", done.word("/reason")));
        }
    }
}

#[test]
fn static_programs_are_said_so() {
    let Some(_) = need("static_programs_are_said_so", "gcc", "gcc") else { return };
    let scratch = Scratch::new("static");
    fs::write(scratch.join("p.c"), "#include <stdlib.h>\nint main(void) { free(malloc(10)); return 7; }\n").unwrap();
    let built = Command::new("gcc").args(["-static", "p.c", "-o", "p"]).current_dir(scratch.path()).status().unwrap();
    if !built.success() {
        return skip("static_programs_are_said_so", "gcc cannot link statically (Debian package libc6-dev)");
    }
    let path = scratch.join("p");
    let path = path.to_str().unwrap();
    Program::new(Mode::Auto, &[path]).run().ended(7).says(&["static", "p"]);
    let done = Program::new(Mode::Auto, &[path]).without_stats().run().ended(7).says(&["static", "p"]);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}

/// As another user: root's own programs keep their preload even if they are set-uid.
#[test]
fn set_uid_programs_are_said_so() {
    let test = "set_uid_programs_are_said_so";
    let Some(_) = need(test, "setpriv", "util-linux") else { return };
    let Some(source) = find("id") else { return skip(test, "no id here (Debian package coreutils)") };
    // Somewhere that another user can reach.
    let directory = std::env::temp_dir().join(format!("allotment-test-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    let (copy, command) = (directory.join("id"), directory.join("allotment"));
    copy_program(source, &copy);
    copy_program(ALLOTMENT, &command);
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    let as_nobody = |words: &[&str]| {
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
        let mut command = Command::new("setpriv");
        command.args(user).args(words).env("HOME", "/nonexistent").env_remove("XDG_CACHE_HOME").current_dir("/");
        command.output().unwrap()
    };
    let plain = as_nobody(&[copy.to_str().unwrap(), "-u"]);
    if plain.stdout == b"0\n" {
        let words = [command.to_str().unwrap(), "run", "--stats", "--", copy.to_str().unwrap(), "-u"];
        let output = as_nobody(&words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.stdout, b"0\n", "{error}");
        let said = |error: &str| error.to_lowercase().matches("set-uid").count();
        assert!(said(&error) > 0, "{error}");
        let output = as_nobody(&[&words[..2], &words[3..]].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.stdout, error.lines().count(), said(&error)), (b"0\n".to_vec(), 1, 1), "{error}");
    } else {
        skip(test, "cannot run a set-uid program as another user here");
    }
    // A user without a home still gets the library.
    if plain.status.success() {
        let words = [command.to_str().unwrap(), "run", "--stats", "--", "true"];
        let output = as_nobody(&words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && error.contains(STATISTICS), "{error}");
    }
    let _ = fs::remove_dir_all(&directory);
}

/// On the command line and in the environment of a preloaded program the same line; only there the program runs.
#[test]
fn wrong_knobs_are_said() {
    let library = Command::new(ALLOTMENT).args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]).output().unwrap();
    let library = String::from_utf8(library.stdout).unwrap();
    let lines = |command: &mut Command, code: i32, out: &str| {
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()),
            (Some(code), out),
            "{error}"
        );
        error.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for (word, said) in [
        ("mod=auto", "there is no knob `mod`; the nearest is `mode`, which takes one of auto, sequences, fallback"),
        ("mode=fast", "`mode` cannot be `fast`; it takes one of auto, sequences, fallback"),
        ("sheaf_objects=100000", "`sheaf_objects` cannot be `100000`; it takes a number from 2 to 1020"),
        ("lazy_flor=1", "there is no knob `lazy_flor`; the nearest is `lazy_floor`, which takes bytes from 0 to 64G"),
        ("mode", "`mode` has no value; it takes one of auto, sequences, fallback"),
        ("lazy_flo", "`lazy_flo` is not KEY=VALUE; the nearest is `lazy_floor`, which takes bytes from 0 to 64G"),
        ("=", "there is no knob ``; the nearest is `mode`, which takes one of auto, sequences, fallback"),
        (
            "m\u{e9}=1",
            "there is no knob `m\\xc3\\xa9`; the nearest is `mode`, which takes one of auto, sequences, fallback",
        ),
    ] {
        for stats in [&["--stats"][..], &[]] {
            let mut run = Command::new(ALLOTMENT);
            run.args(["run", "--set", "index=cpu", "--set", word]).args(stats).args(["--", "echo", "ran"]);
            assert_eq!(lines(&mut run, 2, ""), [format!("allotment: --set: {said}")]);
        }
        let mut preloaded = Command::new("echo");
        preloaded.arg("ran").env("LD_PRELOAD", library.trim());
        // Good words beside it count, and empty ones are none.
        let conf = lines(preloaded.env("ALLOTMENT_CONF", format!(",index=cpu,{word},,")), 0, "ran\n");
        assert_eq!(conf, [format!("allotment: ALLOTMENT_CONF: {said}; ignored")]);
    }
    // All of them are said, also before a program that there is not; what is good beside a wrong one in the environment counts.
    let mut run = Command::new(ALLOTMENT);
    run.args(["run", "--set", "mod=auto,mode=fast", "--set", "foo=1", "--", "/nonexistent/program"]);
    assert_eq!(lines(&mut run, 2, "").len(), 3);
    let done = Program::new(Mode::Auto, &["true"]).set("ALLOTMENT_CONF", "mod=auto,mode=fallback").run().ended(0);
    assert_eq!(done.word("/mode"), "fallback");
}

/// An option of nobody's is no program, and what stands behind the program is the program's.
#[test]
fn unknown_options_are_refused_with_the_nearest_name() {
    for (words, nearest) in [
        (&["--stat", "--", "true"][..], "--stats"),
        (&["--profil=x", "true"], "--profile"),
        (&["-x", "true"], ""),
        (&["--stats", "--lekas", "true"], "--leaks"),
    ] {
        let output = Command::new(ALLOTMENT).arg("run").args(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}\n{error}");
        assert!(error.contains("unexpected argument") && error.contains(nearest), "{error}");
        assert!(error.contains("allotment run [OPTIONS] [--] PROGRAM"), "{error}");
    }
    for words in [&["--", "printf", "%s|", "--stat", "-x", "--"][..], &["printf", "%s|", "--stat", "-x", "--"]] {
        let output = Command::new(ALLOTMENT).arg("run").args(words).output().unwrap();
        assert_eq!(output.stdout, b"--stat|-x|--|", "{words:?}");
    }
}

/// A program that ends because of the limit is not left to its own last words.
#[test]
fn a_hard_limit_that_refused_is_said() {
    for stats in [false, true] {
        let words = ["dd", "if=/dev/zero", "of=/dev/null", "bs=4M", "count=1", "status=none"];
        let program = Program::new(Mode::Auto, &words).knob("hard_limit=1.0 MiB");
        let program = if stats { program } else { program.without_stats() };
        let done = program.run().says(&["allotment: dd was refused memory ", " under hard_limit=1M"]);
        assert_eq!(done.err.lines().filter(|line| line.starts_with("allotment: ")).count(), 1, "{}", done.err);
        let done = Program::new(Mode::Auto, &words).knob("hard_limit=1G");
        let done = if stats { done } else { done.without_stats() }.run().ended(0);
        assert!(!done.err.contains("refused"), "{}", done.err);
    }
}

/// What cannot be written is said, with the code of a failure; a program's own code passes.
#[test]
fn a_full_disk_is_said() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    for words in
        [&["run", "--knobs"][..], &["doctor"], &["doctor", "--json"], &["bench", "--list"], &["--help"], &["-V"]]
    {
        let output = Command::new(ALLOTMENT).args(words).stdout(full()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(error, "allotment: cannot write: No space left on device\n", "{words:?}");
        assert_eq!(output.status.code(), Some(1), "{words:?}");
    }
    let output =
        Command::new(ALLOTMENT).args(["run", "--stats=/dev/full", "--", "sh", "-c", "exit 3"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), error.lines().count()), (Some(3), 1), "{error}");
    assert!(error.contains("cannot write the statistics: No space left"), "{error}");
}

/// Nor what goes to a standard output that is closed.
#[test]
fn a_closed_output_is_said() {
    let script = format!("exec '{ALLOTMENT}' run --stats=- -- true >&-");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.stderr, b"allotment: cannot write: standard output is closed\n");
    for words in ["lib", "doctor", "stat", "run --knobs", "--help", "-V"] {
        let script = format!("exec '{ALLOTMENT}' {words} >&-");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        // (Where nothing publishes, `stat` has nothing to write.)
        if words != "stat" || !error.contains("no program") {
            assert_eq!(error, "allotment: cannot write: standard output is closed\n", "{words}");
            assert_eq!(output.status.code(), Some(1), "{words}");
        }
    }
}

/// A file that cannot be written is known at once; one that gets nothing stays as it is, or is not there.
#[test]
fn files_are_made_before_the_program_and_emptied_after() {
    let scratch = Scratch::new("files");
    let run = |option: &str, program: &[&str]| {
        let output = Command::new(ALLOTMENT).args(["run", option, "--"]).args(program).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    for option in ["--stats", "--profile"] {
        let wrong = run(&format!("{option}=/nonexistent/x"), &["echo", "begun"]);
        assert_eq!(wrong, (Some(125), String::new()));
        let path = scratch.join("kept");
        let with = format!("{option}={}", path.display());
        assert_eq!(run(&with, &["no-such-program-anywhere"]).0, Some(127));
        assert!(!path.exists(), "{with}");
        let long = "x".repeat(1 << 20);
        fs::write(&path, &long).unwrap();
        assert_eq!(run(&with, &["no-such-program-anywhere"]).0, Some(127));
        assert!(fs::read_to_string(&path).unwrap() == long, "{with}");
        let program = ["python3", "-c", "x = bytearray(8000000)"];
        if need("files_are_made", "python3", "python3").is_some() {
            assert_eq!(run(&with, &program).0, Some(0));
            let length = fs::metadata(&path).unwrap().len();
            assert!((1..1 << 20).contains(&length), "{with}: {length}");
        }
        fs::remove_file(&path).unwrap();
    }
    // So is a folder that takes no file, where the name is not known yet; and one file takes one thing.
    let run = |words: &[&str], folder: &str| {
        let output = Command::new(ALLOTMENT).arg("run").args(words).current_dir(folder).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, out, said) = run(&["--profile", "--", "echo", "begun"], "/proc");
    assert_eq!((code, out.as_str(), said.contains("cannot write allotment-")), (Some(125), "", true), "{said}");
    let both = run(&["--stats=x", "--profile=./x", "--", "echo", "begun"], scratch.path().to_str().unwrap());
    assert_eq!(both, (Some(2), String::new(), "allotment: x has room for one thing: name two files\n".into()));
    let (code, out, _) =
        run(&["--profile", "--set", "profile_bytes=0", "--", "echo", "begun"], scratch.path().to_str().unwrap());
    let left: Vec<_> = fs::read_dir(scratch.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!((code, out.as_str(), left), (Some(0), "begun\n", Vec::new()));
    // Nothing is sampled, and a signal ends all.
    let path = scratch.join("none");
    let with = format!("--profile={}", path.display());
    assert_eq!(run(&[&with, "--set", "profile_bytes=0", "--", "sh", "-c", "kill -KILL $$"], "/").0, None);
    assert!(!path.exists());
}

/// Where files may not be so long there is neither board nor profile: of what the program did then nothing is known, and nothing said.
#[test]
fn where_there_is_no_board_nothing_is_concluded() {
    let scratch = Scratch::new("no-board");
    let run = |option: &str| {
        let script = format!("ulimit -f 1; exec \"$0\" run {option} -- true");
        let output = Command::new("sh").args(["-c", &script, ALLOTMENT]).current_dir(scratch.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run("--stats=z.json");
    assert!(said.lines().count() == 1 && said.contains("no statistics") && said.contains("ulimit -f"), "{said}");
    let said = run("--leaks");
    assert!(said.lines().count() == 1 && said.contains("was not sampled"), "{said}");
    assert!(said.contains("/dev/shm") && said.contains("ulimit -f"), "{said}");
}

#[test]
fn knobs_are_listed() {
    let output = Command::new(ALLOTMENT).args(["run", "--knobs"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let page = include_str!("../../docs/tuning.md");
    for knob in TABLE {
        let (default, range) = (knob.show(knob.default), knob.range());
        let line = text.lines().find(|line| line.split(' ').next() == Some(knob.name));
        let words = format!(" {default} {range}");
        let listed = line.is_some_and(|line| line.split_whitespace().collect::<Vec<_>>().join(" ").ends_with(&words));
        assert!(listed && text.contains(knob.meaning), "{} is not listed: {line:?}", knob.name);
        // The page for people, too.
        let row = format!("| `{}` | {default} | {range} | {} |", knob.name, knob.meaning);
        assert!(page.lines().any(|line| line == row), "docs/tuning.md lacks\n{row}");
        let told = page.lines().filter(|line| line.starts_with("### ") && line.contains(&format!("`{}`", knob.name)));
        assert_eq!(told.count(), 1, "docs/tuning.md must have one section about {}", knob.name);
    }
    // And no knob that there is not.
    let table = page.split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, TABLE.len(), "docs/tuning.md has rows of knobs that there are not");
}

/// The preload reaches what the program starts, too, and another preload stays.
#[test]
fn children_are_preloaded() {
    let done = sh("sh -c 'sh -c \"echo $LD_PRELOAD\"'").run().ended(0);
    assert!(done.out.contains("liballotment"), "{}", done.out);
    let done = sh("echo $LD_PRELOAD").set("LD_PRELOAD", "libc.so.6").run().ended(0);
    assert!(done.out.contains("liballotment") && done.out.contains("libc.so.6"), "{}", done.out);
}

/// Root's library lies where every user can read it and only root writes, whatever the environment says.
#[test]
fn a_launcher_that_drops_its_privileges_keeps_the_library() {
    let test = "a_launcher_that_drops_its_privileges_keeps_the_library";
    let Some(_) = need(test, "perl", "perl-base") else { return };
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let plain = Command::new(user[0]).args(&user[1..]).arg("true").status();
    if !plain.is_ok_and(|status| status.success()) {
        return skip(test, "cannot become another user here");
    }
    let work = ["perl", "-e", "my %h; $h{$_} = \"x$_\" for 1..50000; print scalar keys %h"];
    for mode in modes(BOTH).into_iter().filter(|&mode| mode != Mode::Plain) {
        let words = [&user[..], &work].concat();
        let done = Program::new(mode, &words).run().ended(0).took(mode, 50_000);
        assert_eq!((done.out.as_str(), done.err.as_str()), ("50000", ""));
        let done = Program::new(mode, &words).without_stats().run().ended(0);
        assert_eq!((done.out.as_str(), done.err.as_str()), ("50000", ""));
    }
    // The home of somebody else, prepared; and one that is our own below a directory of his.
    let directory = std::env::temp_dir().join(format!("allotment-home-{}", std::process::id()));
    let cache = directory.join(".cache/allotment");
    fs::create_dir_all(&cache).unwrap();
    std::os::unix::fs::chown(&directory, Some(65_533), None).unwrap();
    std::os::unix::fs::chown(&cache, Some(65_534), None).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let command = directory.join("allotment");
    copy_program(ALLOTMENT, &command);
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
    for words in [&[][..], &user] {
        let mut all: Vec<&str> = words.to_vec();
        all.extend([command.to_str().unwrap(), "run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
        let mut preload = Command::new(all[0]);
        preload
            .args(&all[1..])
            .env("HOME", &directory)
            .env("XDG_CACHE_HOME", directory.join(".cache"))
            .current_dir("/");
        let output = preload.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("liballotment") || said.contains("/fd/"), "{output:?}");
        assert!(!said.contains(directory.to_str().unwrap()), "{said}");
    }
    fs::remove_dir_all(&directory).unwrap();
}

/// Whatever a launcher does, a program that runs without Allotment in the end is said so, in one line.
#[test]
fn what_loses_the_library_is_said() {
    for (script, code, word) in [
        ("exec env -i sleep 1", 0, "dropped LD_PRELOAD"),
        ("exec env -i true", 0, "true is run without Allotment"),
        ("exec env -i sh -c 'exit 3'", 3, ""),
        ("exec env LD_PRELOAD= sleep 1", 0, "dropped LD_PRELOAD"),
    ] {
        for stats in [true, false] {
            let program = sh(script);
            let done = if stats { program.run() } else { program.without_stats().run() }.ended(code);
            // (A short one of the launcher's own name cannot be told from it.)
            assert_eq!(done.err.lines().count(), usize::from(!word.is_empty()), "{script}: {}", done.err);
            assert!(done.err.contains(word), "{script}: {}", done.err);
        }
    }
    for script in ["exit 0", "exec true", "exec sleep 1", "kill -9 $$", "exec sh -c 'exec sleep 0.1'"] {
        let done = sh(script).without_stats().run();
        assert_eq!(done.err, "", "{script}");
    }
}

/// As everywhere, `-` is standard output.
#[test]
fn statistics_go_to_standard_output() {
    let output = Command::new(ALLOTMENT).args(["run", "--stats=-", "--", "echo", "first"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.starts_with("first\n") && text.lines().count() > 10, "{text}");
    assert!(output.stderr.is_empty() && !std::path::Path::new("-").exists());
}
