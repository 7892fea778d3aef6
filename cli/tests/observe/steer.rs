//! `tune`, `drain`, `purge`, and processes that cannot answer.

use super::watched::{MIB, Watched, adds_up, allotment, cached, done, number, until};
use crate::common::{ALLOTMENT, BOTH, Mode, modes};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What is tuned is seen, and a bad word changes nothing.
#[test]
fn tune_sets_what_stat_shows() {
    let Some(watched) = Watched::start(&[]) else { return };
    let text = |all: &Value, knob: &str| all["knobs"][knob]["text"].as_str().unwrap().to_owned();
    assert_eq!(
        watched.done("tune", &["cache_floor=8M", "drain=gentle"]),
        "cache_floor: 4M → 8M\ndrain: auto → gentle\n"
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
        // (Between the two the keeper may cache a little.)
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
    assert_eq!(watched.done("tune", &["cache_share=8"]), "cache_share: 3 → 8\n");
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
