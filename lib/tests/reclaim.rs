//! Memory given back on request, knobs of the running heap, and the snapshot that tells both.
#![allow(unsafe_code, reason = "writes to areas and frees them")]

use allotment::stat::Snapshot;
use allotment::{Allotment, area, reclaim};
use std::sync::Mutex;

const MIB: u64 = 1 << 20;

/// The heap and its knobs are the process's: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn what_is_free_goes_back_and_the_snapshot_says_so() {
    let _turn = TURN.lock().unwrap();
    // Nothing goes by itself.
    reclaim::tune("lazy_floor=1G").unwrap();
    reclaim::tune("idle_seconds=3600").unwrap();
    let event = |now: &Snapshot, name| now.events().find(|&(is, _)| is == name).unwrap().1;
    let start = Snapshot::now();
    let block = area::alloc(64 << 20, 4096).unwrap();
    // SAFETY: the area is ours.
    unsafe { block.write_bytes(1, 64 << 20) };
    let used = Snapshot::now();
    assert!(used.in_use >= start.in_use + 64 * MIB && used.held >= used.in_use && used.mapped >= used.held);
    assert!(used.peak >= 64 * MIB);
    assert!(event(&used, "area_alloc") > event(&start, "area_alloc"));
    // SAFETY: nobody uses it any more.
    unsafe { area::free(block) }.unwrap();
    let freed = Snapshot::now();
    assert!(freed.in_use + 64 * MIB <= used.in_use);
    // (A housekeeper may have been before us.)
    let bytes = reclaim::purge() as u64;
    let purged = Snapshot::now();
    assert!(bytes >= 64 * MIB || freed.lazy < 64 * MIB, "{bytes} of {}", freed.lazy);
    assert!(purged.lazy < MIB && purged.held + 60 * MIB < used.held, "{purged:?}");
    assert!(event(&purged, "purge_bytes") >= 64 * MIB);
}

#[test]
fn objects_that_cpus_cache_go_with_a_trim() {
    let _turn = TURN.lock().unwrap();
    let mut objects = [0; 4096];
    let got = Allotment.alloc_bulk(200, &mut objects);
    assert_eq!(got, objects.len());
    // SAFETY: they are ours, and nobody uses them.
    unsafe { Allotment.free_bulk(200, &objects) };
    let cached = Snapshot::now();
    assert!(cached.cached > 0 && cached.meta > 0);
    let _ = reclaim::trim();
    assert!(Snapshot::now().cached < cached.cached);
}

#[test]
fn knobs_are_set_or_the_reason_is_said() {
    let _turn = TURN.lock().unwrap();
    reclaim::tune("soft_limit=2G").unwrap();
    reclaim::tune("soft_limit=none").unwrap();
    for (setting, says) in [
        ("soft_limit=much", "`soft_limit` cannot be `much`"),
        ("soft_limt=2G", "the nearest is `soft_limit`"),
        ("soft_limit", "`soft_limit` has no value"),
        ("mode=fallback", "is read when the heap opens"),
    ] {
        let wrong = reclaim::tune(setting).unwrap_err().to_string();
        assert!(wrong.contains(says), "{setting}: {wrong}");
    }
}
