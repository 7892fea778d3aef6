//! # OpenMetrics
//!
//! The text format 1.0: each family once, with its type, unit and meaning before its samples; counters end in `_total`;
//! histograms in seconds with cumulative buckets; `# EOF` at the end. It is chosen so that readers of Prometheus' older text
//! format take it, too (comments that they do not know are none of their business). Families:
//!
//! ```text
//! allotment_process_info          allotment_<level>_bytes    allotment_<event>_total
//! allotment_set_… {set}
//! allotment_class_… {class}       allotment_page_… {order}   allotment_cpu_… {index, cpu, node}
//! allotment_zone_… {node, …}      allotment_<time>_seconds   allotment_knob {knob}
//! ```
//! Of all processes of a machine only those without a label of their own: a bounded number of series each.

use super::show::{self, Set};
use super::view::View;
use crate::report::snapshot::SetOps;
use allotment_engine::knob::{Kind, TABLE};
use allotment_engine::stat::board::Section as Shown;
use allotment_engine::stat::{Event, Level};
use std::collections::HashMap;
use std::fmt::Write as _;

/// One family: what is said of it, and its samples.
#[derive(Default)]
struct Family {
    head: String,
    samples: String,
}

/// An exposition: families in the order in which they were begun, each once for however many processes.
#[derive(Default)]
struct Exposition {
    families: Vec<Family>,
    places: HashMap<String, usize>,
    /// The family whose samples come.
    current: usize,
    /// Before the labels of each sample.
    whose: Vec<(&'static str, String)>,
}

impl Exposition {
    /// Begins a family, or goes on with it; its samples follow.
    fn family(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        let next = self.families.len();
        self.current = *self.places.entry(name.to_owned()).or_insert(next);
        if self.current < next {
            return;
        }
        let mut head = format!("# TYPE {name} {kind}\n");
        if !unit.is_empty() {
            let _ = writeln!(head, "# UNIT {name} {unit}");
        }
        let _ = writeln!(head, "# HELP {name} {}", escaped(help));
        self.families.push(Family { head, samples: String::new() });
    }
    /// One sample of it.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let Some(Family { samples, .. }) = self.families.get_mut(self.current) else { return };
        samples.push_str(name);
        let whose = self.whose.iter().map(|(label, text)| (*label, text.as_str()));
        let mut before = '{';
        for (label, text) in whose.chain(labels.iter().copied()) {
            let _ = write!(samples, "{before}{label}=\"{}\"", escaped(text));
            before = ',';
        }
        samples.push_str(if before == '{' { " " } else { "} " });
        let _ = writeln!(samples, "{value}");
    }
    /// The text, with the end mark.
    fn text(self) -> String {
        let mut text: String = self.families.into_iter().map(|family| family.head + &family.samples).collect();
        text.push_str("# EOF\n");
        text
    }
    /// A family of one sample.
    fn gauge(&mut self, name: &str, unit: &str, help: &str, value: u64) {
        self.family(name, "gauge", unit, help);
        self.sample(name, &[], value);
    }
    /// The same, counted up.
    fn counter(&mut self, name: &str, unit: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, "counter", unit, help);
        self.sample(&format!("{name}_total"), &[], value);
    }
}

/// Backslash, quote and line's end as the format wants them.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Everything of one process.
pub fn exposition(view: &View) -> String {
    let mut out = Exposition::default();
    process(&mut out, view);
    levels(&mut out, view);
    events(&mut out, view);
    classes(&mut out, view);
    sets(&mut out, view);
    cpus(&mut out, view);
    zones(&mut out, view);
    latencies(&mut out, view);
    knobs(&mut out, view);
    out.text()
}

/// Most series of a process among [`of_all`]: what grows with its classes, CPUs and nodes is not among them.
#[cfg(test)]
pub const SERIES_MAX: usize = 200;

/// What is worth keeping of every process of a machine, each sample with its process's labels.
pub fn of_all<'a>(views: impl IntoIterator<Item = (Vec<(&'static str, String)>, &'a View)>) -> String {
    let mut out = Exposition::default();
    let mut count = 0;
    for (whose, view) in views {
        out.whose = whose;
        process(&mut out, view);
        levels(&mut out, view);
        events(&mut out, view);
        latencies(&mut out, view);
        count += 1;
    }
    out.whose.clear();
    out.gauge("allotment_processes", "", "processes that publish their heaps and could be looked into", count);
    out.text()
}

fn process(out: &mut Exposition, view: &View) {
    let report = &view.report;
    // (A gauge, not the type `info`: collectors of the older text format refuse a whole file for that.)
    out.family("allotment_process_info", "gauge", "", "the process and how it reaches its per-CPU sets");
    let pid = view.pid.to_string();
    let mut labels = vec![
        ("pid", pid.as_str()),
        ("program", &view.program),
        ("mode", report.mode),
        ("reason", report.reason),
        ("index", report.index),
        ("version", env!("CARGO_PKG_VERSION")),
    ];
    labels.retain(|(label, _)| out.whose.iter().all(|(other, _)| other != label));
    out.sample("allotment_process_info", &labels, 1);
    if let Some(resident) = report.end.running.and_then(|running| running.resident) {
        out.gauge("allotment_resident_bytes", "bytes", "resident memory of the process", resident);
    }
}

fn levels(out: &mut Exposition, view: &View) {
    let memory = &view.report.memory;
    out.gauge("allotment_in_use_bytes", "bytes", "bytes of objects and areas in use", memory.in_use);
    out.gauge("allotment_in_use_objects", "", "objects in use", memory.in_use_slab_objects);
    out.gauge("allotment_in_use_areas", "", "areas in use", memory.in_use_areas);
    out.gauge(
        "allotment_cached_bytes",
        "bytes",
        "bytes out of slabs and not in use: in sets and barns",
        memory.in_caches,
    );
    out.gauge("allotment_sets", "", "sets made", view.snapshot.sets.into());
    for &level in Level::ALL {
        let value = view.snapshot.level(level);
        match level {
            Level::Mappings => out.gauge("allotment_mappings", "", level.meaning(), value),
            _ => out.gauge(&format!("allotment_{}_bytes", level.name()), "bytes", level.meaning(), value),
        }
    }
}

fn events(out: &mut Exposition, view: &View) {
    for &event in Event::ALL {
        let value = view.snapshot.event(event);
        match event {
            Event::SlowpathTicks => {
                if let Some(tick) = view.tick {
                    let seconds = value as f64 * tick.0 / 1e9;
                    out.counter("allotment_slowpath_seconds", "seconds", "time spent in slow paths", seconds);
                }
            }
            Event::PurgeBytes => out.counter("allotment_purge_bytes", "bytes", event.meaning(), value),
            _ => out.counter(&format!("allotment_{}", event.name()), "", event.meaning(), value),
        }
    }
    out.counter("allotment_areas_purged", "", "areas that purges gave back", view.snapshot.purged);
}

/// A family with a sample for each of `rows`: labels and value.
fn table<'a>(
    out: &mut Exposition,
    (name, kind, unit, help): (&str, &str, &str, &str),
    rows: impl Iterator<Item = (Vec<(&'a str, String)>, u64)>,
) {
    out.family(name, kind, unit, help);
    let sample = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
    for (labels, value) in rows {
        let labels: Vec<(&str, &str)> = labels.iter().map(|(label, text)| (*label, text.as_str())).collect();
        out.sample(&sample, &labels, value);
    }
}

fn classes(out: &mut Exposition, view: &View) {
    let slabs = view.slabs();
    let class = |slab: &super::view::Slab| vec![("class", slab.objsize.to_string())];
    type Of = fn(&super::view::Slab) -> u64;
    let families: [(&str, &str, &str, Of); 5] = [
        ("allotment_class_allocs", "counter", "objects handed out, by size class", |slab| slab.allocs),
        ("allotment_class_frees", "counter", "objects taken back, by size class", |slab| slab.frees),
        ("allotment_class_objects", "gauge", "objects in use, by size class", |slab| slab.active_objs),
        ("allotment_class_cached_objects", "gauge", "objects in sets and barns, by size class", |slab| {
            slab.sharedavail
        }),
        ("allotment_class_slabs", "gauge", "slabs, by size class", |slab| slab.num_slabs),
    ];
    for (name, kind, help, of) in families {
        table(out, (name, kind, "", help), slabs.iter().map(|slab| (class(slab), of(slab))));
    }
    let orders = &view.snapshot.page_orders;
    let order = |size: u64| vec![("order", (size / 4096).max(1).ilog2().to_string())];
    let is_used = |size: u64| size >= 4096;
    let rows = || orders.iter().filter(|class| is_used(class.size));
    table(
        out,
        ("allotment_page_allocs", "counter", "", "blocks of pages handed out, by order"),
        rows().map(|class| (order(class.size), class.allocs)),
    );
    table(
        out,
        ("allotment_page_frees", "counter", "", "blocks of pages taken back, by order"),
        rows().map(|class| (order(class.size), class.frees)),
    );
}

fn sets(out: &mut Exposition, view: &View) {
    let rows = |of: fn(&SetOps) -> u64| {
        view.snapshot.by_set.iter().enumerate().map(move |(set, ops)| (vec![("set", set.to_string())], of(ops)))
    };
    table(
        out,
        ("allotment_set_allocs", "counter", "", "objects and blocks handed out, by per-CPU set"),
        rows(|ops| ops.allocs),
    );
    table(
        out,
        ("allotment_set_frees", "counter", "", "objects and blocks taken back, by per-CPU set"),
        rows(|ops| ops.frees),
    );
}

fn cpus(out: &mut Exposition, view: &View) {
    let sets = show::sets(view.texts.text(Shown::Sets));
    let labels = |set: &Set| {
        let cpu = set.cpu.map_or_else(String::new, |cpu| cpu.to_string());
        vec![("index", set.index.to_string()), ("cpu", cpu), ("node", set.node.to_string())]
    };
    let rows = |of: fn(&Set) -> u64| sets.iter().map(move |set| (labels(set), of(set)));
    table(out, ("allotment_cpu_cached_bytes", "gauge", "bytes", "bytes that a CPU's set holds"), rows(|set| set.bytes));
    table(
        out,
        ("allotment_cpu_cached_objects", "gauge", "", "objects that a CPU's set holds"),
        rows(|set| set.objects),
    );
}

fn zones(out: &mut Exposition, view: &View) {
    let zones = show::zones(view.texts.text(Shown::Zoneinfo));
    let rows = zones.iter().flat_map(|zone| {
        zone.pages.iter().map(|(name, &value)| (vec![("node", zone.node.to_string()), ("kind", name.clone())], value))
    });
    table(out, ("allotment_zone_pages", "gauge", "", "pages of a zone, as zoneinfo names them"), rows);
    let buddies = show::buddies(view.texts.text(Shown::Buddyinfo));
    let rows = buddies.iter().flat_map(|buddy| {
        let labels = |order: usize| vec![("node", buddy.node.to_string()), ("order", order.to_string())];
        buddy.free.iter().enumerate().map(move |(order, &value)| (labels(order), value))
    });
    table(out, ("allotment_zone_free_blocks", "gauge", "", "free blocks of a zone, by order"), rows);
}

fn latencies(out: &mut Exposition, view: &View) {
    for latency in view.latencies() {
        let name = format!("allotment_{}_seconds", latency.name);
        out.family(&name, "histogram", "seconds", latency.meaning);
        let mut sum = 0_u64;
        for bucket in &latency.buckets {
            sum = sum.saturating_add(bucket.count);
            // (Ends are rounded to three digits, so that a series keeps its name.)
            let end = bucket.below_ns.map_or_else(|| "+Inf".to_owned(), |ns| format!("{:.9}", ns / 1e9));
            out.sample(&format!("{name}_bucket"), &[("le", &end)], sum);
        }
        out.sample(&format!("{name}_count"), &[], sum);
        out.sample(&format!("{name}_sum"), &[], latency.sum_ns / 1e9);
    }
}

fn knobs(out: &mut Exposition, view: &View) {
    out.family("allotment_knob", "gauge", "", "values of the knobs that are numbers");
    for (at, value) in view.knobs().filter(|&(at, _)| !matches!(TABLE[at].kind, Kind::Word(_))) {
        out.sample("allotment_knob", &[("knob", TABLE[at].name)], value);
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::observe::view::tests::{fabric, view};
    use std::collections::{BTreeMap, BTreeSet};

    /// One parsed sample.
    #[derive(Debug)]
    pub struct Sample {
        pub name: String,
        pub labels: Vec<(String, String)>,
        pub value: f64,
    }

    fn name(text: &str) -> bool {
        let first = |letter: char| letter.is_ascii_alphabetic() || matches!(letter, '_' | ':');
        text.starts_with(first) && text.chars().all(|letter| first(letter) || letter.is_ascii_digit())
    }

    fn sample(line: &str) -> Result<Sample, String> {
        let bad = || format!("not a sample: {line}");
        let end = line.find(['{', ' ']).ok_or_else(bad)?;
        let (word, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if let Some(inner) = rest.strip_prefix('{') {
            rest = inner;
            loop {
                let (label, behind) = rest.split_once("=\"").ok_or_else(bad)?;
                let (mut text, mut letters) = (String::new(), behind.char_indices());
                let close = loop {
                    match letters.next().ok_or_else(bad)? {
                        (at, '"') => break at,
                        (_, '\\') => match letters.next().ok_or_else(bad)?.1 {
                            'n' => text.push('\n'),
                            letter @ ('"' | '\\') => text.push(letter),
                            _ => return Err(bad()),
                        },
                        (_, letter) => text.push(letter),
                    }
                };
                if !name(label) || labels.iter().any(|(other, _)| other == label) {
                    return Err(bad());
                }
                labels.push((label.to_owned(), text));
                rest = &behind[close + 1..];
                if let Some(next) = rest.strip_prefix('}') {
                    rest = next;
                    break;
                }
                rest = rest.strip_prefix(',').ok_or_else(bad)?;
            }
        }
        let value = rest.strip_prefix(' ').ok_or_else(bad)?;
        let value: f64 = value.parse().map_err(|_| bad())?;
        if name(word) { Ok(Sample { name: word.to_owned(), labels, value }) } else { Err(bad()) }
    }

    /// Reads an exposition by the letter of the format; every sample, or what is wrong.
    pub fn check(text: &str) -> Result<Vec<Sample>, String> {
        let body = text.strip_suffix("# EOF\n").ok_or("no end mark")?;
        let mut families: BTreeMap<String, String> = BTreeMap::new();
        let mut current: Option<(String, String)> = None;
        let (mut samples, mut seen, mut has_samples) = (Vec::new(), BTreeSet::new(), false);
        for line in body.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "TYPE", family, kind] => {
                    if families.insert(family.to_owned(), kind.to_owned()).is_some() || !name(family) {
                        return Err(format!("the family {family} twice, or no name"));
                    }
                    if !["gauge", "counter", "histogram"].contains(&kind) {
                        return Err(format!("no type: {line}"));
                    }
                    current = Some((family.to_owned(), kind.to_owned()));
                    has_samples = false;
                }
                ["#", what @ ("UNIT" | "HELP"), family, text] => {
                    if has_samples || current.as_ref().is_none_or(|(name, _)| name != family) {
                        return Err(format!("not at the head of its family: {line}"));
                    }
                    if what == "HELP" && text.contains(['"', '\\']) {
                        return Err(format!("two formats escape this differently: {line}"));
                    }
                    if what == "UNIT" && !family.ends_with(&format!("_{text}")) {
                        return Err(format!("unit and name differ: {line}"));
                    }
                }
                ["#", ..] => return Err(format!("no such comment: {line}")),
                _ => {
                    let sample = sample(line)?;
                    let (family, kind) = current.as_ref().ok_or_else(|| format!("no family: {line}"))?;
                    let suffix = sample.name.strip_prefix(family.as_str());
                    let right = match kind.as_str() {
                        "gauge" => suffix == Some(""),
                        "counter" => suffix == Some("_total") && sample.value >= 0.0,
                        _ => matches!(suffix, Some("_bucket" | "_count" | "_sum")),
                    };
                    if !right {
                        return Err(format!("not of the {kind} {family}: {line}"));
                    }
                    if !seen.insert((sample.name.clone(), sample.labels.clone())) {
                        return Err(format!("twice: {line}"));
                    }
                    has_samples = true;
                    samples.push(sample);
                }
            }
        }
        for (family, _) in families.iter().filter(|(_, kind)| *kind == "histogram") {
            let whose = |sample: &Sample| -> Vec<_> {
                sample.labels.iter().filter(|(label, _)| label != "le").cloned().collect()
            };
            let all = |suffix: &str| -> Vec<&Sample> {
                samples.iter().filter(|sample| sample.name == format!("{family}{suffix}")).collect()
            };
            for count in all("_count") {
                let of = |suffix: &str| -> Vec<&Sample> {
                    all(suffix).into_iter().filter(|sample| whose(sample) == whose(count)).collect()
                };
                histogram(family, &of("_bucket"), &of("_count"))?;
            }
            if all("_count").is_empty() && !all("_bucket").is_empty() {
                return Err(format!("{family}: buckets without their count"));
            }
        }
        Ok(samples)
    }

    fn histogram(family: &str, buckets: &[&Sample], counts: &[&Sample]) -> Result<(), String> {
        let ends: Vec<f64> = buckets
            .iter()
            .map(|bucket| match bucket.labels.last() {
                Some((le, end)) if le == "le" => end.trim_start_matches('+').parse().unwrap_or(f64::NAN),
                _ => f64::NAN,
            })
            .collect();
        if !ends.is_sorted_by(|a, b| a < b) || ends.last() != Some(&f64::INFINITY) {
            return Err(format!("{family}: ends of buckets {ends:?}"));
        }
        if !buckets.is_sorted_by(|a, b| a.value <= b.value)
            || counts.len() != 1
            || buckets.last().map(|bucket| bucket.value) != Some(counts[0].value)
        {
            return Err(format!("{family}: buckets do not add up"));
        }
        Ok(())
    }

    #[test]
    fn the_exposition_is_valid_and_complete() {
        let view = view(&fabric());
        let text = exposition(&view);
        let samples = check(&text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
        let value = |name: &str, labels: &[(&str, &str)]| {
            let is = |sample: &&Sample| {
                sample.name == name
                    && labels.iter().all(|(label, text)| sample.labels.iter().any(|(l, t)| l == label && t == text))
            };
            samples.iter().find(is).unwrap_or_else(|| panic!("no {name} {labels:?}")).value
        };
        assert_eq!(value("allotment_class_objects", &[("class", "64")]), 50_000.0);
        assert_eq!(value("allotment_alloc_slowpath_total", &[]), 700.0);
        assert_eq!(value("allotment_set_frees_total", &[("set", "1")]), 30_003.0);
        assert_eq!(value("allotment_purge_bytes_total", &[]), 1_048_576.0);
        assert_eq!(value("allotment_slowpath_seconds_total", &[]), 0.0005);
        assert_eq!(value("allotment_cpu_cached_bytes", &[("index", "0"), ("cpu", "1")]), 4567.0);
        assert_eq!(value("allotment_zone_free_blocks", &[("order", "2")]), 16.0);
        assert_eq!(value("allotment_refill_seconds_count", &[]), 700.0);
        assert_eq!(value("allotment_process_info", &[("program", "server --port \"1\"\\x")]), 1.0);
        for level in Level::ALL.iter().filter(|&&level| level != Level::Mappings) {
            assert_eq!(value(&format!("allotment_{}_bytes", level.name()), &[]), view.snapshot.level(*level) as f64);
        }
    }

    #[test]
    fn the_checker_finds_what_is_wrong() {
        for wrong in [
            "# TYPE a gauge\na 1\n",
            "a 1\n# EOF\n",
            "# TYPE a counter\na 1\n# EOF\n",
            "# TYPE a gauge\na 1\na 2\n# EOF\n",
            "# TYPE a gauge\n# UNIT a bytes\na 1\n# EOF\n",
            "# TYPE a gauge\na 1\n# HELP a late\n# EOF\n",
            "# TYPE a gauge\na{b=\"\\x\"} 1\n# EOF\n",
            "# TYPE a gauge\n# TYPE b gauge\na 1\n# EOF\n",
            "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_count 1\na_sum 1\n# EOF\n",
            "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_count 1\na_sum 1\n# EOF\n",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        assert!(check("# TYPE a gauge\n# HELP a b\na{c=\"\\\"\"} 1\n# EOF\n").is_ok());
    }

    /// Each family once, with the samples of both; and not more of them, whatever a process has of classes and CPUs.
    #[test]
    fn many_processes_have_a_bounded_number_of_series_each() {
        let view = view(&fabric());
        let whose = |pid: &str| vec![("pid", pid.to_owned()), ("name", "a\"b".to_owned()), ("cgroup", "/x".to_owned())];
        let text = of_all([(whose("1"), &view), (whose("2"), &view)]);
        let samples = check(&text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
        let of = |pid: &str| {
            samples
                .iter()
                .filter(|sample| sample.labels.iter().any(|(label, text)| label == "pid" && text == pid))
                .count()
        };
        assert_eq!((of("1"), of("2")), (of("2"), (samples.len() - 1) / 2));
        assert!((50..=SERIES_MAX).contains(&of("1")), "{}", of("1"));
        assert_eq!(
            samples.last().map(|sample| (sample.name.as_str(), sample.value)),
            Some(("allotment_processes", 2.0))
        );
        let none = check(&of_all([])).expect("valid");
        assert_eq!((none.len(), none[0].value), (1, 0.0));
    }

    /// A scrape's series keep their names although the length of a tick is measured anew each time.
    #[test]
    fn ends_of_buckets_stay() {
        let ends = |later: u64| {
            let mut view = view(&fabric());
            view.tick = Some(super::super::latency::Tick(0.5 + later as f64 * 1e-7));
            let text = exposition(&view);
            text.lines()
                .filter(|line| line.contains("le="))
                .map(|line| line.split(' ').next().unwrap_or("").to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(ends(0), ends(1));
    }
}
