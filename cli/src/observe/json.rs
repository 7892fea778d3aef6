//! # A heap as JSON
//!
//! One object, the same of a running process (`stat --json`) and of one that has ended (`run --stats=FILE.json`); its
//! schema is `docs/heap.schema.json`. What is not known of one of them is null. Sections that the process writes as
//! text are parsed into numbers. Keys are those of the text.

use super::view::View;
use super::{show, text};
use crate::args::StatSection as Section;
use crate::conf;
use allotment_engine::knob::TABLE;
use allotment_engine::stat::board::Section as Shown;
use serde_json::{Map, Value, json};

/// The version of the schema: raised when a key goes or changes its meaning, not when one is added.
const SCHEMA: u64 = 1;

/// The sections asked for, or everything.
pub fn object(view: &View, sections: &[Section]) -> Value {
    let report = &view.report;
    let mut all = Map::new();
    let mut put = |name: &str, value: Value| all.insert(name.to_owned(), value);
    put("schema", SCHEMA.into());
    put("pid", view.pid.into());
    put("pid_in_namespace", view.snapshot.pid.into());
    put("program", view.program.clone().into());
    put("mode", report.mode.into());
    put("reason", report.reason.into());
    put("index", report.index.into());
    put("sets_made", report.sets.into());
    put("now_ns", view.now_ns.into());
    put("shown_age_ns", view.age_ns().into());
    put("silence", view.silence.clone().into());
    if sections.is_empty() {
        let end = &report.end;
        put(
            "process",
            json!({
                "status": end.running.is_none().then_some(end.status),
                "resident": end.running.and_then(|running| running.resident),
                "resident_peak": end.rss_peak,
                "wall_ns": end.wall_ns,
                "cpu_ns": end.cpu_ns,
                "minor_faults": end.minor_faults,
                "major_faults": end.major_faults,
            }),
        );
        put("memory", json!(report.memory));
        put("operations", json!(report.operations));
        put("slow", json!(report.slow));
        put("events", json!(report.events));
        put("levels", json!(report.levels));
        put("classes", json!(report.classes));
        put("page_orders", json!(report.page_orders));
        put("fragmentation_percent", view.fragmentation().into());
    }
    let sections = if sections.is_empty() { Section::ALL } else { sections };
    for &section in sections {
        put(section.name(), value(view, section));
    }
    Value::Object(all)
}

/// One section.
fn value(view: &View, section: Section) -> Value {
    if text::shown(section).is_some() && view.age_ns().is_none() {
        // It was never asked.
        return Value::Null;
    }
    let text = |section| view.texts.text(section);
    match section {
        Section::Vmstat => {
            view.vmstat().into_iter().map(|line| (line.name.to_owned(), Value::from(line.value))).collect()
        }
        Section::Slabinfo => json!(view.slabs()),
        Section::Latency => {
            view.latencies().into_iter().map(|latency| (latency.name.to_owned(), json!(latency))).collect()
        }
        Section::Knobs => view
            .knobs()
            .map(|(at, value)| {
                let knob = &TABLE[at];
                let shown = json!({
                    "value": value,
                    "text": knob.show(value).to_string(),
                    "default": knob.default,
                    "min": knob.min,
                    "max": knob.max,
                    "at_start_only": conf::is_fixed(at),
                });
                (knob.name.to_owned(), shown)
            })
            .collect(),
        Section::Zoneinfo => json!(show::zones(text(Shown::Zoneinfo))),
        Section::Buddyinfo => json!(show::buddies(text(Shown::Buddyinfo))),
        Section::Vmallocinfo => json!(show::areas(text(Shown::Vmallocinfo))),
        Section::PercpuStats => json!(show::percpu(text(Shown::PercpuStats))),
        Section::Sets => json!(show::sets(text(Shown::Sets))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::view::tests::{fabric, view};

    #[test]
    fn every_section_is_there_and_only_those_asked_for() {
        let view = view(&fabric());
        let all = object(&view, &[]);
        for section in Section::ALL {
            let value = &all[section.name()];
            assert!(value.is_object() || value.is_array(), "{} is {value}", section.name());
            let size = value.as_object().map_or_else(|| value.as_array().map_or(0, Vec::len), Map::len);
            assert!(size > 0, "{} is empty", section.name());
        }
        let one = object(&view, &[Section::Buddyinfo]);
        assert!(one["buddyinfo"].is_array() && one["memory"].is_null() && one["vmstat"].is_null());
        assert_eq!(one["pid"], 77);
    }

    /// The numbers are those of the text.
    #[test]
    fn sums_equal_the_text() {
        let view = view(&fabric());
        let all = object(&view, &[]);
        let text_sum: u64 = text::section(&view, Section::Slabinfo, None)
            .lines()
            .skip(2)
            .filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                Some(words[1].parse::<u64>().ok()? * words[3].parse::<u64>().ok()?)
            })
            .sum();
        let slabs = all["slabinfo"].as_array().expect("a list");
        let sum: u64 =
            slabs.iter().map(|slab| slab["active_objs"].as_u64().unwrap() * slab["objsize"].as_u64().unwrap()).sum();
        assert_eq!((sum, all["memory"]["in_use_slab_bytes"].as_u64()), (text_sum, Some(text_sum)));
        for line in text::section(&view, Section::Vmstat, None).lines() {
            let (name, value) = line.split_once(' ').expect("two words");
            assert_eq!(all["vmstat"][name].to_string(), value);
        }
        let areas = all["vmallocinfo"]["areas"].as_array().expect("a list");
        let bytes: u64 = areas.iter().map(|area| area["bytes"].as_u64().unwrap()).sum();
        assert_eq!(bytes, 1_052_672 + 33_554_432);
        let latency = &all["latency"]["refill"];
        let buckets = latency["buckets"].as_array().expect("a list");
        let count: u64 = buckets.iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum();
        assert_eq!((count, latency["count"].as_u64()), (700, Some(700)));
    }
}
