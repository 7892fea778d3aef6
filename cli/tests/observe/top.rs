//! `top` in a terminal.

use super::watched::{Watched, signal, until};
use crate::common::{ALLOTMENT, Scratch, need};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

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
        &["lazily freed", "9."],
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
    screen.shows(&["cache_floor: 4M → 2M"]);
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

/// Whatever signal ends it, by a flag or at once, the terminal is as it was.
#[test]
fn top_puts_the_terminal_back_at_every_signal() {
    let test = "top_puts_the_terminal_back_at_every_signal";
    let Some(tmux) = need(test, "tmux", "tmux") else { return };
    let Some(watched) = Watched::start(&[]) else { return };
    let scratch = Scratch::new("signals");
    let command = |name: &str| {
        format!(
            "ulimit -c 0; stty -a > {0}/before; {ALLOTMENT} top {1} --interval 0.2; echo ended with $?; stty -a > {0}/{name}; \
             sleep 600",
            scratch.path().display(),
            watched.pid
        )
    };
    let screen = Screen::open(tmux, &scratch, "sleep 600");
    for (name, code) in [("USR1", 0), ("USR2", 0), ("ALRM", 0), ("PROF", 0), ("RTMIN", 0), ("SEGV", 139), ("BUS", 135)]
    {
        screen.tmux(&["respawn-pane", "-k", &command(name)]);
        screen.shows(&["resident", "(peak"]);
        signal(top_of(watched.pid), name);
        let text = screen.shows(&[&format!("ended with {code}")]);
        assert!(!text.contains("q quit"), "{name}: the screen was not put back\n{text}");
        let settings = |name: &str| fs::read_to_string(scratch.join(name)).unwrap_or_default();
        until("settings", || !settings(name).is_empty());
        assert_eq!(settings("before"), settings(name), "{name}");
    }
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

/// A terminal that claims to be larger than memory.
#[test]
fn top_of_a_terminal_without_bounds() {
    let Some(tmux) = need("top_of_a_terminal_without_bounds", "tmux", "tmux") else { return };
    let Some(watched) = Watched::start(&[]) else { return };
    let scratch = Scratch::new("bounds");
    let command = format!("stty cols 65535 rows 65535; {ALLOTMENT} top {}; echo ended with $?; sleep 600", watched.pid);
    let screen = Screen::open(tmux, &scratch, &command);
    screen.shows(&["it says that it is 65535 × 65535", "stty"]);
    screen.shows(&["ended with 1"]);
}
