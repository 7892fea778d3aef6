//! # A report for eyes
//!
//! Aligned columns: what, bytes for eyes, exact bytes, objects.

use super::{ClassReport, Report, Running};
use crate::term::{Paint, bytes, count, nanoseconds, plural};
use allotment_engine::stat::Event;
use std::fmt::Write as _;

/// Classes shown.
const CLASSES_SHOWN: usize = 6;

/// Events by the layer that counts them. `SlowpathTicks` is printed as time.
const LAYERS: &[(&str, &[Event])] = &[
    ("heap", &[Event::AllocSlowpath, Event::FreeSlowpath, Event::NoMemory, Event::BadFree]),
    ("set", &[Event::SheafSwap, Event::ClassIdle, Event::SetAdopt, Event::SeqAbort, Event::Direct]),
    ("barn", &[Event::BarnGet, Event::BarnPut]),
    ("slab", &[Event::SheafRefill, Event::SheafFlush, Event::AllocSlab, Event::FreeSlab]),
    ("page", &[Event::PageRefill, Event::PageFlush, Event::ZoneGrow]),
    ("area", &[Event::AreaAlloc, Event::AreaReuse, Event::AreaFree, Event::AreaMove, Event::AreaGrow]),
    ("purge", &[Event::Purge, Event::PurgeBytes, Event::PurgeRefused]),
    ("process", &[Event::Keeper, Event::Drain, Event::Fence, Event::Fork, Event::Vfork, Event::Reaper]),
];

impl Report {
    /// The whole report.
    pub fn text(&self, paint: Paint) -> String {
        let mut text = String::new();
        self.head(&mut text, paint);
        self.memory_lines(&mut text, paint);
        self.operation_lines(&mut text, paint);
        text
    }

    fn head(&self, text: &mut String, paint: Paint) {
        let end = &self.end;
        let state = if end.running.is_some() { String::new() } else { format!(" {}", ending(end.status)) };
        let title = format!("allotment: {} (pid {}){state}", end.program, end.pid);
        let _ = writeln!(text, "{}", paint.bold(&title));
        let sets = format!("{} set{} by {}", self.sets, plural(self.sets.into()), self.index);
        line(text, "mode", &format!("{} ({}), {sets}", self.mode, self.reason));
        let slow = |text: &mut String| {
            if let Some(slow) = &self.slow {
                let share = slow
                    .percent_of_cpu
                    .map_or_else(String::new, |percent| format!(", {percent:.2} % of the time on CPUs"));
                line(text, "slow paths", &format!("{}{share}", nanoseconds(slow.ns)));
            }
        };
        if end.running == Some(Running::default()) {
            // A copy: nothing is known of the process.
            return slow(text);
        }
        line(text, "time", &format!("{} elapsed, {} on CPUs", nanoseconds(end.wall_ns), nanoseconds(end.cpu_ns)));
        slow(text);
        let most = if end.rss_peak <= end.rss_floor { "at most " } else { "" };
        let faults = format!(
            "{} page faults, {} of them with input",
            count(end.minor_faults.saturating_add(end.major_faults)),
            count(end.major_faults)
        );
        let now = end.running.and_then(|running| running.resident);
        let now = now.map_or_else(String::new, |resident| format!("{} now, ", bytes(resident)));
        line(text, "resident", &format!("{now}peak {most}{}, {faults}", bytes(end.rss_peak)));
    }

    fn memory_lines(&self, text: &mut String, paint: Paint) {
        let memory = &self.memory;
        let heading = format!("{:<20}{:>12}{:>20}{:>16}", "memory", "size", "bytes", "objects");
        let _ = writeln!(text, "{}", paint.bold(&heading));
        let objects = memory.in_use_slab_objects.saturating_add(memory.in_use_areas);
        let row = |text: &mut String, name: &str, size: u64, objects: Option<u64>| {
            let mut row = format!("  {name:<18}{:>12}{:>20}", bytes(size), count(size));
            if let Some(objects) = objects {
                let _ = write!(row, "{:>16}", count(objects));
                if memory.objects_off_by > 0 {
                    let _ = write!(row, " ± {}", count(memory.objects_off_by));
                }
            }
            let _ = writeln!(text, "{row}");
        };
        row(text, "in use", memory.in_use, Some(objects));
        row(text, "  in slabs", memory.in_use_slab_bytes, Some(memory.in_use_slab_objects));
        let _ = writeln!(
            text,
            "  {:<18}{:>12}{:>20}{:>16}",
            "  in areas",
            bytes(memory.in_use_area_bytes),
            count(memory.in_use_area_bytes),
            count(memory.in_use_areas)
        );
        for (name, size) in [
            ("in CPU caches", memory.in_caches),
            ("lazily freed", memory.lazy),
            ("free pages, dirty", memory.free_dirty),
            ("free pages, clean", memory.free_clean),
            ("mapped", memory.mapped),
            ("reserved", memory.reserved),
            ("metadata", memory.metadata),
            ("peak taken", memory.peak),
        ] {
            row(text, name, size, None);
        }
    }

    fn operation_lines(&self, text: &mut String, paint: Paint) {
        let _ = writeln!(text, "{}", paint.bold("operations"));
        let all = &self.operations;
        let share = |part: u64, whole: u64| if whole == 0 { 100.0 } else { part as f64 * 100.0 / whole as f64 };
        line(
            text,
            "fast",
            &format!(
                "{} of {} allocs ({:.2} %), {} of {} frees ({:.2} %)",
                count(all.allocs_fast),
                count(all.allocs),
                share(all.allocs_fast, all.allocs),
                count(all.frees_fast),
                count(all.frees),
                share(all.frees_fast, all.frees)
            ),
        );
        let mut top: Vec<&ClassReport> = self.classes.iter().collect();
        top.sort_by_key(|class| std::cmp::Reverse(class.allocs));
        for (at, class) in top.iter().take(CLASSES_SHOWN).enumerate() {
            let label = if at == 0 { "top classes" } else { "" };
            line(
                text,
                label,
                &format!(
                    "{:>8}: {} allocs, {} frees, {} in use, {} slabs",
                    if class.size < 10_240 { format!("{} B", class.size) } else { bytes(class.size) },
                    count(class.allocs),
                    count(class.frees),
                    count(class.objects),
                    count(class.slabs)
                ),
            );
        }
        let named: Vec<Event> =
            LAYERS.iter().flat_map(|(_, events)| *events).copied().chain([Event::SlowpathTicks]).collect();
        let other: Vec<Event> = Event::ALL.iter().copied().filter(|event| !named.contains(event)).collect();
        for (layer, events) in LAYERS.iter().copied().chain([("other", other.as_slice())]) {
            let words = events.iter().map(|&event| match event {
                Event::PurgeBytes => format!("{} {}", event.name(), bytes(self.event(event))),
                _ => format!("{} {}", event.name(), count(self.event(event))),
            });
            let mut label = layer;
            let mut row = String::new();
            for word in words {
                if !row.is_empty() && row.chars().count() + word.chars().count() > 78 {
                    line(text, label, &row);
                    row.clear();
                    label = "";
                }
                if !row.is_empty() {
                    row.push_str(", ");
                }
                row.push_str(&word);
            }
            if !row.is_empty() {
                line(text, label, &row);
            }
        }
    }
}

/// One line: a label and what there is to say.
fn line(text: &mut String, label: &str, rest: &str) {
    let _ = writeln!(text, "  {label:<12}{rest}");
}

/// An end in words.
fn ending(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        format!("was ended by signal {}", libc::WTERMSIG(status))
    } else {
        format!("ended with status {}", libc::WEXITSTATUS(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_event_is_shown_twice() {
        for &event in Event::ALL {
            let shown = LAYERS.iter().filter(|(_, events)| events.contains(&event)).count();
            assert!(shown <= usize::from(event != Event::SlowpathTicks), "{}", event.name());
        }
    }
}
