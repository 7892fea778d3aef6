//! What `stat` shows: sections, sums, JSON.

use super::watched::{MIB, Watched, adds_up, done, list, number, signal, sum, until};
use crate::common::{BOTH, Mode, Scratch, modes};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::Path;

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
    let schema: Value = serde_json::from_str(include_str!("../../../docs/heap.schema.json")).unwrap();
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
