//! The C and C++ programs of `tests/c` under Allotment, in every mode.
//!
//! Each program checks its own rules and passes on plain glibc as well
//! (`ALLOTMENT_TEST_MODES=plain`), but for those that are about our reports.

use crate::common::{BOTH, Done, EVERY, Mode, Program, compile, long, modes, need, preloaded, program, skip};

/// One case of a program in each of these modes.
fn case(file: &str, case: &str, in_modes: &[Mode]) {
    let Some(path) = program(file) else { return };
    for mode in modes(in_modes) {
        let seconds = if long() { "1.5" } else { "0.25" };
        let forks = if long() { "80" } else { "12" };
        let program = Program::new(mode, &[&path, case]).set("THREADS_SECONDS", seconds).set("FORKS", forks);
        let program = if mode == Mode::Sampled { program.set("SAMPLED", "1") } else { program };
        // (A thousand of them wait for each other most of the time.)
        let program = if mode == Mode::Sampled && !long() { program.set("MANY", "250") } else { program };
        program.run().passed().took(mode, 1);
    }
}

macro_rules! cases {
    ($($test:ident: $file:literal $case:literal $modes:expr;)*) => {
        $(#[test] fn $test() { case($file, $case, $modes); })*
    };
}

/// With the heap profile on, every path of it: many samples, in threads, handlers, forks and beside refusals.
#[test]
fn everything_with_samples() {
    for (file, cases) in [
        ("semantics.c", &["all"][..]),
        ("cxx.cpp", &["all"]),
        ("threads.c", &["cross", "one_way", "short", "many", "signals", "jumps", "migrate", "trim"]),
        ("fork.c", &["load", "forkers", "atfork", "chain", "vfork", "spawn"]),
        ("limits.c", &["late_limit", "starving_threads", "late_filter", "filter_kills_late", "kills", "kills_threads"]),
        ("life.c", &["files_closed", "no_files"]),
        ("preinit.c", &["all"]),
    ] {
        cases.iter().for_each(|name| case(file, name, &[Mode::Sampled]));
    }
}

cases! {
    semantics: "semantics.c" "all" EVERY;
    cxx: "cxx.cpp" "all" EVERY;
    threads_free_across: "threads.c" "cross" EVERY;
    threads_one_way: "threads.c" "one_way" EVERY;
    threads_short_lived: "threads.c" "short" EVERY;
    threads_many_at_once: "threads.c" "many" EVERY;
    threads_signals: "threads.c" "signals" EVERY;
    threads_jumps_out_of_handlers: "threads.c" "jumps" BOTH;
    threads_migrate: "threads.c" "migrate" EVERY;
    threads_trim: "threads.c" "trim" EVERY;
    fork_under_load: "fork.c" "load" EVERY;
    fork_from_many_threads: "fork.c" "forkers" EVERY;
    fork_handlers_allocate: "fork.c" "atfork" EVERY;
    fork_chain: "fork.c" "chain" BOTH;
    fork_daemon: "fork.c" "daemon" BOTH;
    vfork_under_load: "fork.c" "vfork" EVERY;
    vfork_that_fails: "fork.c" "vfork_fails" BOTH;
    fork_spawn_system_popen: "fork.c" "spawn" EVERY;
    limit_comes_late: "limits.c" "late_limit" EVERY;
    limit_of_data: "limits.c" "data_limit" BOTH;
    limit_met_by_threads: "limits.c" "starving_threads" EVERY;
    limit_no_mappings: "limits.c" "no_mappings" EVERY;
    limit_no_mappings_singles: "limits.c" "no_mappings_singles" EVERY;
    limit_no_advice: "limits.c" "no_advice" BOTH;
    limit_filter_comes_late: "limits.c" "late_filter" EVERY;
    limit_filter_that_kills_comes_late: "limits.c" "filter_kills_late" EVERY;
    limit_locked_memory: "limits.c" "locked" BOTH;
    limit_locked_memory_as_user: "limits.c" "locked_as_user" BOTH;
    life_files_closed: "life.c" "files_closed" BOTH;
    life_no_files: "life.c" "no_files" BOTH;
    life_before_everybody: "preinit.c" "all" BOTH;
    life_before_and_after_main: "life.c" "before_and_after" EVERY;
    life_exit_under_load: "life.c" "exit_under_load" EVERY;
    life_main_thread_ends: "life.c" "main_thread_ends" BOTH;
    exit_ways: "exit.c" "ways" EVERY;
    exit_memory_that_another_uses: "exit.c" "held" EVERY;
    exit_nothing_but_the_heap_is_left: "exit.c" "gone" BOTH;
    exit_many: "exit.c" "many" BOTH;
    what_knobs_change: "knobs.c" "all" EVERY;
    freed_at_random_given_in_order: "scattered.c" "all" BOTH;
}

#[test]
fn limit_from_the_start() {
    let (Some(limits), Some(_)) = (program("limits.c"), need("limit_from_the_start", "prlimit", "util-linux")) else {
        return;
    };
    for mode in modes(EVERY) {
        // (At 64 MiB and more whole seconds go into calls that are refused.)
        for mib in if long() { &[48_u64, 64, 256][..] } else { &[48] } {
            let limit = format!("--as={}", mib << 20);
            Program::new(mode, &["prlimit", &limit, &limits, "limited"]).run().passed().took(mode, 1);
        }
    }
}

/// Anything but the few calls of an allocator kills.
#[test]
fn limit_strict_filters() {
    let Some(limits) = program("limits.c") else { return };
    for case in ["kills", "kills_threads"] {
        for mode in modes(EVERY) {
            let program = Program::new(mode, &[&limits, case]);
            let program = if mode == Mode::Plain { program.set("LIMITS_EXTRA", "1") } else { program };
            let done = program.run().passed().took(mode, 1);
            assert!(done.out.contains("ok ") || done.out.contains("skipped: "), "{}", done.out);
        }
    }
}

/// Calls that some systems do not have or refuse, refused from the first instruction on.
#[test]
fn limit_refused_calls() {
    let (Some(deny), Some(threads)) = (program("deny.c"), program("threads.c")) else { return };
    let refused: &[(&str, &str, &[&str])] = &[
        ("1", "EPERM", &["membarrier"]),
        ("38", "ENOSYS", &["membarrier"]),
        ("38", "ENOSYS", &["getcpu", "rseq"]),
        ("1", "EPERM", &["process_madvise", "mbind", "get_mempolicy", "sched_getaffinity", "prctl"]),
        ("22", "EINVAL", &["madvise", "process_madvise"]),
        ("12", "ENOMEM", &["mremap"]),
    ];
    for mode in modes(BOTH) {
        for &(number, name, calls) in refused {
            let words = [&[deny.as_str(), number], calls, &["--", &threads, "cross"]].concat();
            let done = Program::new(mode, &words).set("THREADS_SECONDS", "0.2").run().passed().took(mode, 1);
            if mode != Mode::Plain && calls == ["membarrier"] && done.status.success() {
                assert_eq!(done.word("/mode"), "fallback", "{name}");
                let unregistered = std::env::var("GLIBC_TUNABLES").is_ok();
                assert!(
                    mode == Mode::Fallback || unregistered || done.word("/reason").contains("membarrier"),
                    "{name}"
                );
            }
        }
    }
}

/// A memory cgroup of 64 MiB (version 1 only): what is freed is used again or given
/// back before it comes to a kill; and a kill takes no statistics away.
#[test]
fn limit_of_a_cgroup() {
    let Some(limits) = program("limits.c") else { return };
    let group = std::path::PathBuf::from(format!("/sys/fs/cgroup/memory/allotment-test-{}", std::process::id()));
    let writable = std::fs::create_dir(&group).is_ok();
    if !writable || std::fs::write(group.join("memory.limit_in_bytes"), "67108864").is_err() {
        let _ = std::fs::remove_dir(&group);
        return skip("limit_of_a_cgroup", "no memory cgroup (version 1) can be made here");
    }
    let enter = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$1\"", group.display());
    let run = |mode, case: &str| Program::new(mode, &["sh", "-c", &enter, &limits, case]).run();
    let most = group.join("memory.max_usage_in_bytes");
    // The soft limit is 56 MiB; the process has some beside the heap.
    let bound = 59 << 20;
    let ends: Vec<(Mode, Done, u64, Done)> = modes(BOTH)
        .into_iter()
        .map(|mode| {
            let frugal = || {
                std::fs::write(&most, "0").unwrap();
                let done = run(mode, "frugal");
                (done, std::fs::read_to_string(&most).unwrap().trim().parse().unwrap())
            };
            // It must live whenever it runs; that the keeper comes to run in time is seen in one of three.
            let mut tries = (0..3).map(|_| frugal());
            let (mut done, mut used) = tries.next().unwrap();
            while done.status.success()
                && used >= bound
                && let Some(again) = tries.next()
            {
                (done, used) = again;
            }
            (mode, done, used, run(mode, "greedy"))
        })
        .collect();
    // The kernel may take a moment to see the group empty.
    while std::fs::remove_dir(&group).is_err() && group.exists() {
        std::thread::yield_now();
    }
    for (mode, frugal, used, greedy) in ends {
        frugal.passed().took(mode, 1000);
        assert!(used < bound, "{mode:?}: {used} bytes");
        greedy.killed(9).took(mode, 10);
    }
}

/// Pointers that nobody gave out: said so with their address, left alone, and life goes on.
#[test]
fn bad_pointers_are_reported() {
    let Some(bad) = program("bad.c") else { return };
    if !preloaded() {
        return;
    }
    let cases = [
        "stack",
        "fixed",
        "mapped",
        "odd",
        "interior",
        "small_interior",
        "twice_large",
        "twice_small",
        "twice_at_once",
        "foreign_realloc",
    ];
    for mode in modes(EVERY) {
        for case in cases {
            let done = Program::new(mode, &[&bad, case]).knob("bad_free=report").run().ended(0);
            assert!(done.out.contains("survived"), "{case}");
            let mut addresses = 0;
            for line in done.out.lines().filter_map(|line| line.strip_prefix("bad 0x")) {
                let said = done.err.lines().any(|error| error.contains(&format!("0x{line}")));
                assert!(said, "{}: nothing about 0x{line}\n{}", done.what, done.err);
                addresses += 1;
            }
            assert!(addresses > 0, "{case}");
            assert!(done.number("/events/bad_free") >= addresses, "{}: {}", done.what, done.number("/events/bad_free"));
        }
    }
}

#[test]
fn bad_pointers_abort_if_asked() {
    let Some(bad) = program("bad.c") else { return };
    if preloaded() {
        for mode in modes(BOTH) {
            for case in ["stack", "twice_large", "twice_small"] {
                Program::new(mode, &[&bad, case]).knob("bad_free=abort").run().killed(6).says(&["0x"]);
            }
        }
    }
}

/// Each at the very call that is wrong; the C library's own allocator stops most of them, too.
#[test]
fn what_is_freed_twice_is_stopped_at_once() {
    let Some(twice) = program("twice.c") else { return };
    let cases = Program::new(Mode::Plain, &[&twice]).run().ended(0).out;
    for mode in modes(BOTH).into_iter().filter(|_| preloaded()) {
        for case in cases.lines() {
            Program::new(mode, &[&twice, case]).knob("bad_free=abort").run().killed(6).says(&["0x"]);
        }
        // What is right is not stopped.
        let Some(semantics) = program("semantics.c") else { return };
        Program::new(mode, &[&semantics, "s32_blocks_never_overlap"])
            .knob("bad_free=abort")
            .run()
            .passed()
            .took(mode, 1);
    }
}

/// A program that frees a thousand wrong pointers says so ten times, and how often at its end.
#[test]
fn bad_pointers_are_counted() {
    let Some(bad) = program("bad.c") else { return };
    for mode in modes(BOTH).into_iter().filter(|_| preloaded()) {
        let done = Program::new(mode, &[&bad, "many"]).run().says(&["and 990 more", "is not of this heap"]).ended(0);
        assert_eq!(done.err.lines().filter(|line| line.contains("left alone")).count(), 10, "{}", done.err);
        assert_eq!(done.number("/events/bad_free"), 1000);
    }
}

/// What docs/limits.md says of the stack that the allocator takes, at every entry point and under the knobs that do more.
#[test]
fn a_small_stack_is_enough() {
    const BOUND: &str = "4096";
    let Some(stack) = program("stack.c") else { return };
    let rounds = if long() { "200000" } else { "15000" };
    let few: &[&str] = &["hard_limit=64M", "soft_limit=24M"];
    let all: [&[&str]; 7] = [
        &[],
        &few[..1],
        &few[1..],
        few,
        &["sync_free=1", "idle_seconds=0"],
        &["drain=gentle", "keeper_bytes=1M"],
        &["bad_free=report", "profile_bytes=1"],
    ];
    for mode in modes(&[Mode::Auto, Mode::Fallback, Mode::Tiny, Mode::Sampled]).into_iter().filter(|_| preloaded()) {
        for knobs in all {
            let program = Program::new(mode, &[&stack, BOUND, rounds]);
            let done = knobs.iter().fold(program, |done, knob| done.knob(knob)).run();
            assert_eq!(done.out, "", "{}: deeper than {BOUND} bytes", done.what);
            done.ended(0);
        }
    }
}

/// A debugger steps through sequences one instruction at a time: none can commit then.
#[test]
fn single_stepped() {
    let Some(step) = program("step.c") else { return };
    for mode in modes(BOTH) {
        Program::new(mode, &[&step]).run().passed();
    }
}

/// valgrind registers no area, has its own ideas about threads, and lets a stack grow as far as its pointer only.
#[test]
fn under_valgrind() {
    if need("under_valgrind", "valgrind", "valgrind").is_none() {
        return;
    }
    let [Some(semantics), Some(threads), Some(depths)] = ["semantics.c", "threads.c", "depths.c"].map(program) else {
        return;
    };
    for mode in modes(&[Mode::Auto]) {
        for words in [[semantics.as_str(), "s32_blocks_never_overlap"], [&threads, "one_way"], [&depths, ""]] {
            let words = [&["valgrind", "-q", "--tool=none"], words.as_slice()].concat();
            let done = Program::new(mode, &words).set("THREADS_SECONDS", "0.3").run().passed().took(mode, 1);
            assert!(!done.err.contains("WARNING"), "{}", done.err);
        }
    }
}

/// A library that comes and goes, again and again, with what it allocated.
#[test]
fn loaded_and_unloaded() {
    let Some(early) = compile("early.c", "libearly.so", &["-shared", "-fPIC"]) else { return };
    let Some(load) = program("load.c") else { return };
    for mode in modes(BOTH) {
        Program::new(mode, &[&load, &early.display().to_string()]).run().passed().took(mode, 1);
    }
}

/// `RTLD_DEEPBIND` would let a plug-in free our memory by the C library's `free`.
#[test]
fn deepbound_plugins_share_the_heap() {
    let Some(_) = compile("plugin.c", "libplugin.so", &["-shared", "-fPIC"]) else { return };
    let Some(deepbind) = program("deepbind.c") else { return };
    for mode in modes(EVERY) {
        Program::new(mode, &[&deepbind]).run().passed().took(mode, 4000);
    }
    // The flag kept, the crash is the C library's.
    for mode in modes(BOTH).into_iter().filter(|_| preloaded()) {
        let done = Program::new(mode, &[&deepbind]).knob("deepbind=keep").run();
        assert!(!done.status.success(), "{}: RTLD_DEEPBIND was dropped against the knob", done.what);
    }
}

/// Giant areas keep their contents and go back, by whatever threads, at once or soon, beside forks.
#[test]
fn giant_areas_go_back_in_slices() {
    let Some(giant) = program("giant.c") else { return };
    let rounds = if long() { "12" } else { "1" };
    let forced: &[&str] = &["async_free_threshold=1", "max_active=4", "max_gather_batch_count=1"];
    let all: [&[&str]; 4] =
        [&[], forced, &["sync_free=1", "max_active=2", "max_gather_batch_count=512"], &["async_free_threshold=0"]];
    for mode in modes(BOTH) {
        for knobs in all {
            for what in ["contents", "threads", "forks"] {
                let done = Program::new(mode, &[&giant, what]).set("ROUNDS", rounds);
                knobs.iter().fold(done, |done, knob| done.knob(knob)).run().passed().took(mode, 1);
            }
        }
        // By the caller alone, where there are to be no threads.
        for knob in ["async_free_threshold=0", "idle_seconds=0"] {
            let done = Program::new(mode, &[&giant, "falls"]).set("SYNC", "1").set("WORKERS", "0");
            done.knob(knob).run().passed().took(mode, 1);
        }
        Program::new(mode, &[&giant, "falls"]).set("SYNC", "1").knob("sync_free=1").run().passed().took(mode, 1);
        if preloaded() {
            let done = Program::new(mode, &[&giant, "falls"]).set("WORKERS", "1").knob("max_active=1");
            done.run().passed().took(mode, 1);
        }
    }
}

/// An idle program's memory goes back by itself, in a forked child as well; never without the thread.
#[test]
fn idle_programs_give_their_memory_back() {
    let Some(idle) = program("idle.c") else { return };
    let knobs = |done: Program| done.knob("idle_seconds=1").knob("keeper_bytes=1M");
    for mode in modes(BOTH).into_iter().filter(|_| preloaded()) {
        for what in ["pages", "mixed", "small", "fork", "files"] {
            let done = knobs(Program::new(mode, &[&idle, what])).run().passed().took(mode, 1);
            assert_eq!(done.number("/events/keeper"), 1, "{}", done.what);
        }
        let done = Program::new(mode, &["true"]).run().passed();
        assert_eq!(done.number("/events/keeper"), 0, "{}: a small program needs none", done.what);
        let done = knobs(Program::new(mode, &[&idle, "unwatched"])).knob("idle_seconds=0").run().passed();
        assert_eq!(done.number("/events/keeper"), 0, "{}", done.what);
    }
}

/// Filters that were there before the process and that end it for a call which glibc's malloc does not make. (Without the
/// command's board, which is made with more calls.)
#[test]
fn inherited_filters_that_kill() {
    let (Some(deny), Some(threads)) = (program("deny.c"), program("threads.c")) else { return };
    let library = Program::new(Mode::Auto, &["sh", "-c", "echo LD_PRELOAD=$LD_PRELOAD"]).run().ended(0).out;
    for tunables in ["", "glibc.pthread.rseq=0"].into_iter().filter(|_| preloaded()) {
        for call in ["process_madvise", "sched_getaffinity", "getpid", "clock_gettime"] {
            let words = [&deny, "0", call, "--", "env", library.trim(), &threads, "one_way"];
            let program = Program::new(Mode::Plain, &words).set("THREADS_SECONDS", "0.3");
            let program = program.set("ALLOTMENT_CONF", "keeper_bytes=1M").set("GLIBC_TUNABLES", tunables);
            program.run().passed();
        }
    }
}

/// Where no thread can be made, that is nobody's error.
#[test]
fn a_keeper_that_cannot_be_started_leaves_errno_alone() {
    let (Some(deny), Some(idle)) = (program("deny.c"), program("idle.c")) else { return };
    for mode in modes(BOTH).into_iter().filter(|_| preloaded()) {
        let words = [&deny, "11", "clone", "clone3", "--", &idle, "errno"];
        let done = Program::new(mode, &words).knob("keeper_bytes=1M").run().passed().took(mode, 1);
        assert_eq!(done.number("/events/keeper"), 0, "{}", done.what);
    }
}
