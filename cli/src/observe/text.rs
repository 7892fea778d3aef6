//! # Sections as text
//!
//! In the kernel's own formats where one exists. Sections that the process writes itself are passed on as they are.

use super::latency::time;
use super::view::View;
use crate::args::StatSection as Section;
use crate::conf;
use crate::term::{Paint, bytes};
use allotment_engine::knob::TABLE;
use allotment_engine::stat::board::Section as Shown;
use std::fmt::Write as _;

/// The section of the process's texts, if it is one of them.
pub fn shown(section: Section) -> Option<Shown> {
    match section {
        Section::Zoneinfo => Some(Shown::Zoneinfo),
        Section::Buddyinfo => Some(Shown::Buddyinfo),
        Section::Vmallocinfo => Some(Shown::Vmallocinfo),
        Section::PercpuStats => Some(Shown::PercpuStats),
        Section::Sets => Some(Shown::Sets),
        Section::Vmstat | Section::Slabinfo | Section::Latency | Section::Knobs => None,
    }
}

/// One section. `before` is what was seen so long ago: counters of `vmstat` then have a rate.
pub fn section(view: &View, section: Section, before: Option<&View>) -> String {
    match section {
        Section::Vmstat => vmstat(view, before),
        Section::Slabinfo => slabinfo(view),
        Section::Latency => latency(view),
        Section::Knobs => knobs(view),
        _ => shown(section).map_or_else(String::new, |section| {
            let mut text = view.texts.text(section).to_owned();
            let cut = view.texts.cut(section);
            if cut > 0 {
                let _ = writeln!(text, "... {cut} more bytes had no room");
            }
            text
        }),
    }
}

/// The summary: what `run --stats` prints, and times.
pub fn summary(view: &View, paint: Paint) -> String {
    let mut text = view.report.text(paint);
    let latencies = view.latencies();
    if latencies.iter().any(|latency| latency.count > 0) {
        let heading = format!("{:<14}{:>12}{:>12}{:>12}{:>12}", "latency", "count", "mean", "99 % below", "all below");
        let _ = writeln!(text, "{}", paint.bold(&heading));
        for latency in latencies.iter().filter(|latency| latency.count > 0) {
            let [mean, most, all] = [Some(latency.mean_ns), latency.p99_below_ns, latency.max_below_ns].map(time);
            let _ = writeln!(text, "  {:<12}{:>12}{mean:>12}{most:>12}{all:>12}", latency.name, latency.count);
        }
    }
    text
}

/// `name value`, and with an earlier view the change a second.
fn vmstat(view: &View, before: Option<&View>) -> String {
    let earlier = before.map(|before| (before.vmstat(), view.now_ns.saturating_sub(before.now_ns)));
    let mut text = String::new();
    for (at, line) in view.vmstat().into_iter().enumerate() {
        let _ = write!(text, "{} {}", line.name, line.value);
        if let Some((lines, ns)) = &earlier
            && line.counter
            && *ns > 0
        {
            let change = line.value.saturating_sub(lines.get(at).map_or(0, |line| line.value));
            let _ = write!(text, " {:.1}/s", change as f64 * 1e9 / *ns as f64);
        }
        text.push('\n');
    }
    text
}

/// `/proc/slabinfo`, version 2.1. `limit`: most objects in a sheaf; `sharedavail`: objects in sets and barns. Sheaves
/// move whole and tune themselves: `batchcount` and `sharedfactor` are 0, as with the kernel's own.
fn slabinfo(view: &View) -> String {
    let mut text = String::from(
        "slabinfo - version: 2.1\n\
         # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> \
         <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>\n",
    );
    for slab in view.slabs() {
        let _ = writeln!(
            text,
            "{:<17} {:6} {:6} {:6} {:4} {:4} : tunables {:4} {:4} {:4} : slabdata {:6} {:6} {:6}",
            slab.name,
            slab.active_objs,
            slab.num_objs,
            slab.objsize,
            slab.objperslab,
            slab.pagesperslab,
            slab.limit,
            0,
            0,
            slab.num_slabs,
            slab.num_slabs,
            slab.sharedavail
        );
    }
    text
}

fn latency(view: &View) -> String {
    let latencies = view.latencies();
    if latencies.is_empty() {
        return "times are in ticks of another machine or another boot: they cannot be told\n".into();
    }
    latencies.iter().map(super::latency::Latency::text).collect::<Vec<_>>().join("\n")
}

/// Every knob: its value now, its default, its range, and whether it can be changed.
pub fn knobs(view: &View) -> String {
    let mut text = String::new();
    for (at, value) in view.knobs() {
        let _ = writeln!(text, "{}", knob(at, value));
    }
    text
}

/// One knob's line.
pub fn knob(at: usize, value: u64) -> String {
    let knob = &TABLE[at];
    let (now, default) = (knob.show(value).to_string(), knob.show(knob.default));
    let fixed = if conf::is_fixed(at) { ", at the start only" } else { "" };
    format!("{:<23} {now:<10} default {default}, {}{fixed}", knob.name, knob.range())
}

/// What the reader should know of the numbers, if some are missing.
pub fn missing(view: &View) -> Option<String> {
    let (unseen, sets) = (view.snapshot.unseen, view.snapshot.sets);
    let line =
        || format!("{unseen} of {sets} sets of process {} are not in these numbers: /dev/shm was full", view.pid);
    (unseen > 0).then(line)
}

/// What the reader should know of the texts, if they are not of now.
pub fn caveat(view: &View) -> Option<String> {
    let age = match view.age_ns() {
        None => "there is nothing from before".to_owned(),
        Some(age) => format!("shown is what it said {} ago", crate::term::nanoseconds(age)),
    };
    match &view.silence {
        Some(why) => Some(format!("{why}; {age}")),
        None if !view.live => Some(match view.age_ns() {
            None => "a copy, without sections that the process writes itself".into(),
            Some(_) => "a copy".into(),
        }),
        None => None,
    }
}

/// One line of the list of processes.
pub fn listed(view: &View) -> String {
    let memory = &view.report.memory;
    let resident = view.report.end.running.and_then(|running| running.resident).unwrap_or(0);
    let command: String = view.program.chars().take(60).collect();
    format!(
        "{:>8} {:>11} {:>11} {:>11} {:<10} {command}",
        view.pid,
        bytes(memory.in_use),
        bytes(resident),
        bytes(memory.in_caches),
        view.report.mode
    )
}

/// What stands above that list.
pub const LIST_HEADING: &str = "     PID      in use    resident      cached mode       command";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::show::tests as shows;
    use crate::observe::view::tests::{fabric, view};
    use allotment_engine::stat::Event;

    #[test]
    fn slabinfo_is_the_kernels_format() {
        let text = section(&view(&fabric()), Section::Slabinfo, None);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("slabinfo - version: 2.1"));
        assert!(lines.next().is_some_and(|line| line.starts_with("# name            <active_objs>")));
        let line = lines.find(|line| line.starts_with("allot-64 ")).expect("a class");
        let words: Vec<&str> = line.split_whitespace().collect();
        let expected = "allot-64 50000 102400 64 256 4 : tunables 1020 0 0 : slabdata 400 400 1000";
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn vmstat_is_name_and_value_and_a_rate_when_watched() {
        let (mut later, before) = (fabric(), view(&fabric()));
        later.event(0, Event::AllocSlowpath, 1700);
        let mut later = view(&later);
        later.now_ns += 2_000_000_000;
        let text = section(&before, Section::Vmstat, None);
        assert!(text.lines().all(|line| line.split(' ').count() == 2), "{text}");
        assert!(text.lines().any(|line| line == "alloc_slowpath 700"));
        let text = section(&later, Section::Vmstat, Some(&before));
        assert!(text.lines().any(|line| line == "alloc_slowpath 1700 500.0/s"), "{text}");
        assert!(text.lines().any(|line| line == "taken 3265152" || line.starts_with("taken ") && !line.contains("/s")));
    }

    #[test]
    fn what_the_process_wrote_is_passed_on() {
        let view = view(&fabric());
        for (name, text) in [
            (Section::Zoneinfo, shows::ZONEINFO),
            (Section::Buddyinfo, shows::BUDDYINFO),
            (Section::Vmallocinfo, shows::VMALLOCINFO),
            (Section::PercpuStats, shows::PERCPU),
            (Section::Sets, shows::SETS),
        ] {
            assert_eq!(section(&view, name, None), text);
        }
    }

    #[test]
    fn the_summary_says_that_it_runs() {
        let text = summary(&view(&fabric()), Paint::none());
        assert!(text.lines().next().is_some_and(|line| line.contains("(pid 77)") && !line.contains("ended")), "{text}");
        assert!(text.contains("50.0 MiB now, peak 60.0 MiB"), "{text}");
        assert!(text.contains("refill") && text.contains("99 % below"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn old_texts_are_said_to_be_old() {
        let mut view = view(&fabric());
        assert_eq!(caveat(&view), None);
        view.silence = Some("process 77 is stopped".into());
        assert_eq!(caveat(&view).as_deref(), Some("process 77 is stopped; shown is what it said 1.0 ms ago"));
        view.texts.at_ns = 0;
        assert!(caveat(&view).is_some_and(|line| line.ends_with("nothing from before")));
    }

    #[test]
    fn knobs_say_whether_they_can_be_changed() {
        let text = knobs(&view(&fabric()));
        assert_eq!(text.lines().count(), TABLE.len());
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).expect("a knob").to_owned();
        assert!(line("mode ").contains("at the start only") && line("mode ").contains("auto"));
        assert!(line("lazy_floor ").contains("1M") && !line("lazy_floor ").contains("at the start"));
    }
}
