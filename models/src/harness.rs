//! Runs a model: half at random, half by PCT, from a printed seed.

use crate::machine::{self, Sabotage};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// A thread of a model; what it has stored is seen when it ends.
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> shuttle::thread::JoinHandle<T> {
    machine::flush();
    shuttle::thread::spawn(move || {
        let result = body();
        machine::point();
        machine::flush();
        result
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `body` until the schedules are used up or a panic; how many were run.
fn run(cpus: usize, schedules: usize, seed: u64, sabotage: Sabotage, body: fn()) -> (usize, std::thread::Result<()>) {
    let ran = Arc::new(AtomicUsize::new(0));
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = MaxSteps::FailAfter(200_000);
    config.silence_warnings = true;
    // A failing seed is printed in any case, and a schedule is many pages long.
    config.failure_persistence = FailurePersistence::None;
    let one = |ran: Arc<AtomicUsize>| {
        move || {
            ran.fetch_add(1, Relaxed);
            machine::reset(cpus, sabotage);
            body();
            machine::verify();
        }
    };
    let result = catch_unwind(AssertUnwindSafe(|| {
        let half = schedules.div_ceil(2);
        Runner::new(RandomScheduler::new_from_seed(seed, half), config.clone()).run(one(Arc::clone(&ran)));
        Runner::new(PctScheduler::new_from_seed(seed, 4, half), config).run(one(Arc::clone(&ran)));
    }));
    (ran.load(Relaxed), result)
}

/// The protocol holds in `schedules` schedules on `cpus` CPUs; in a quarter of them in a debug build, which
/// is slow.
///
/// # Panics
/// When it does not.
pub fn holds(model: &str, cpus: usize, schedules: usize, body: fn()) {
    let seed = number("ALLOTMENT_MODEL_SEED").unwrap_or(1);
    let schedules = number("ALLOTMENT_MODEL_ITERATIONS")
        .map_or(if cfg!(debug_assertions) { schedules / 4 } else { schedules }, |n| n as usize);
    let start = Instant::now();
    let (ran, result) = run(cpus, schedules, seed, Sabotage::None, body);
    println!("{model}: {ran} schedules on {cpus} CPUs from seed {seed} in {:.1?}", start.elapsed());
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

/// Broken as told, the protocol fails in at most `schedules` schedules.
///
/// # Panics
/// When it does not.
pub fn fails(model: &str, cpus: usize, schedules: usize, sabotage: Sabotage, body: fn()) {
    let seed = number("ALLOTMENT_MODEL_SEED").unwrap_or(1);
    let (ran, result) = run(cpus, schedules, seed, sabotage, body);
    println!("{model}: canary {sabotage:?} failed in schedule {ran} of {schedules} from seed {seed}");
    let panic = result.expect_err("nothing was found");
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or_default();
    assert!(["VIOLATION", "deadlock"].iter().any(|word| text.contains(word)), "{model}: another panic: {text}");
}
