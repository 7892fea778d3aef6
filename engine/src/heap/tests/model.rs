//! The heap against a naive model: what is live, where, and what was written there; and, sampled, what the profile tells of it.

use super::*;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Malloc(usize),
    Calloc(usize),
    Aligned(usize, u32),
    Realloc(usize, usize),
    /// By a part of what it has, so many times.
    Grow(usize, usize, usize),
    Guarded(usize),
    Free(usize),
    Trim,
    Purge,
    Park,
    /// A knob that areas depend on has another of its values.
    Turn(usize),
}

/// What [`Op::Turn`] sets.
const TURNS: [(Id, [u64; 2]); 4] = [
    (Id::SyncFree, [0, 1]),
    (Id::HugeBytes, [1 << 20, 128 << 10]),
    (Id::SoftLimit, [0, 4 << 20]),
    (Id::MoveBytes, [2 << 20, 64 << 10]),
];

pub(super) fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 1..200_usize, 4 => 200..5000_usize, 2 => 5000..40_000_usize, 2 => 32_000..300_000_usize, 2 => (9..13_usize).prop_map(|pages| pages * PAGE), 1 => 300_000..6_000_000_usize]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => sizes().prop_map(Op::Malloc),
        2 => sizes().prop_map(Op::Calloc),
        1 => (sizes(), 4..22_u32).prop_map(|(size, shift)| Op::Aligned(size, shift)),
        4 => (any::<usize>(), sizes()).prop_map(|(which, size)| Op::Realloc(which, size)),
        2 => (any::<usize>(), 2..40_usize, 1..12_usize).prop_map(|(which, part, times)| Op::Grow(which, part, times)),
        1 => sizes().prop_map(Op::Guarded),
        6 => any::<usize>().prop_map(Op::Free),
        1 => Just(Op::Trim),
        1 => Just(Op::Purge),
        1 => Just(Op::Park),
        1 => (0..2 * TURNS.len()).prop_map(Op::Turn),
    ];
    prop::collection::vec(op, 1..300)
}

/// A pattern that belongs to an address: the first and last bytes and every 512th.
fn places(size: usize) -> impl Iterator<Item = usize> {
    (0..size).step_by(512).chain(size.saturating_sub(9)..size)
}
pub(super) unsafe fn fill(at: usize, size: usize, seed: u8) {
    places(size).for_each(|place| unsafe { ((at + place) as *mut u8).write(seed ^ place as u8) });
}
pub(super) unsafe fn check(at: usize, size: usize, seed: u8, upto: usize) {
    for place in places(size).filter(|&place| place < upto) {
        assert_eq!(unsafe { ((at + place) as *const u8).read() }, seed ^ place as u8, "at {at:#x} + {place} of {size}");
    }
}

pub(super) struct Model<'a> {
    heap: &'a Heap<Test>,
    pub(super) live: BTreeMap<usize, (usize, u8)>,
    seed: u8,
}

impl Model<'_> {
    pub(super) fn add(&mut self, at: usize, size: usize, align: usize) {
        assert!(at != 0 && at.is_multiple_of(align.max(16)));
        let usable = self.heap.usable(at as *const u8).unwrap();
        assert!(usable >= size);
        if let Some((&before, &(len, _))) = self.live.range(..=at).next_back() {
            assert!(before + len <= at, "overlap");
        }
        if let Some((&after, _)) = self.live.range(at..).next() {
            assert!(at + size <= after, "overlap");
        }
        self.seed = self.seed.wrapping_add(37);
        unsafe { fill(at, size, self.seed) };
        self.live.insert(at, (size, self.seed));
    }
    pub(super) fn pick(&self, which: usize) -> Option<(usize, usize, u8)> {
        let nth = which % self.live.len().max(1);
        self.live.iter().nth(nth).map(|(&at, &(size, seed))| (at, size, seed))
    }
    pub(super) fn run(&mut self, op: &Op) {
        match *op {
            Op::Malloc(size) => self.add(self.heap.malloc(size) as usize, size, 16),
            Op::Calloc(size) => {
                let at = self.heap.calloc(size) as usize;
                let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, size) };
                assert!(bytes.iter().all(|&byte| byte == 0), "calloc of {size} is not zero");
                self.add(at, size, 16);
            }
            Op::Aligned(size, shift) => self.add(self.heap.aligned(size, 1 << shift) as usize, size, 1 << shift),
            Op::Realloc(which, size) => {
                let Some(object) = self.pick(which) else { return };
                self.resize(object, size);
            }
            Op::Grow(which, part, times) => {
                let Some(mut object) = self.pick(which) else { return };
                for _ in 0..times {
                    let size = (object.1 + object.1 / part + 1).min(8 << 20);
                    object = (self.resize(object, size), size, self.seed);
                }
            }
            Op::Guarded(size) => {
                if let Some(at) = self.heap.area_alloc(size, PAGE, true) {
                    self.add(at, size, PAGE);
                }
            }
            Op::Free(which) => {
                let Some((at, size, seed)) = self.pick(which) else { return };
                unsafe { check(at, size, seed, size) };
                self.live.remove(&at);
                unsafe { self.heap.free(at as *mut u8) };
            }
            Op::Trim => {
                self.heap.trim();
            }
            Op::Purge => {
                self.heap.purge();
            }
            Op::Park => {
                self.heap.park();
            }
            Op::Turn(which) => {
                let (knob, values) = TURNS[which / 2];
                self.heap.cache.knobs.set(knob as usize, values[which % 2]);
            }
        }
    }
    fn resize(&mut self, (at, old, seed): (usize, usize, u8), size: usize) -> usize {
        let new = unsafe { self.heap.realloc(at as *mut u8, size) } as usize;
        unsafe { check(new, old, seed, size) };
        self.live.remove(&at);
        self.add(new, size, 16);
        new
    }
    /// What begins a case.
    pub(super) fn new(heap: &Heap<Test>) -> Model<'_> {
        TURNS.iter().for_each(|&(knob, values)| {
            heap.cache.knobs.set(knob as usize, values[0]);
        });
        Model { heap, live: BTreeMap::new(), seed: 1 }
    }
    /// All structures hold between any two operations.
    fn run_all(&mut self, ops: &[Op], mut each: impl FnMut(&Self)) {
        for (at, op) in ops.iter().enumerate() {
            self.run(op);
            each(self);
            if at % 8 == 0 {
                self.heap.verify();
            }
        }
        self.end();
    }
    /// All structures hold, and all that is left is as it was, and freed.
    pub(super) fn end(&mut self) {
        self.heap.verify();
        while let Some((at, size, seed)) = self.pick(0) {
            unsafe { check(at, size, seed, size) };
            self.live.remove(&at);
            unsafe { self.heap.free(at as *mut u8) };
        }
    }
}

pub(super) fn against_the_model(heap: &Heap<Test>, cases: u32) {
    proptest!(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }, |(ops in ops())| {
        Model::new(heap).run_all(&ops, |_| ());
        assert_empty(heap);
    });
}

#[test]
fn heap_matches_the_model_on_fake_cpus() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Simulated));
    against_the_model(&HEAP, 60);
}

#[test]
fn heap_matches_the_model_in_the_fallback() {
    static HEAP: Heap<Test> = Heap::new();
    assert!(open(&HEAP, Mode::Fallback));
    against_the_model(&HEAP, 60);
}

#[test]
fn heap_matches_the_model_in_sequences() {
    static HEAP: Heap<Test> = Heap::new();
    if open(&HEAP, Mode::Sequences) {
        against_the_model(&HEAP, 60);
    }
}

/// What the profile says is live: samples, bytes, whole objects.
pub(super) fn live_samples(heap: &Heap<Test>) -> (u64, u64, u64) {
    let Some(header) = heap.profile.samples.header() else { return (0, 0, 0) };
    let stacks = ((&raw const *header) as usize + profile_words::STACKS_AT) as *const profile_words::Stack;
    let (mut bytes, mut objects) = (0, 0);
    for at in 0..header.stacks.load(Relaxed) as usize {
        let stack = unsafe { &*stacks.add(at) };
        bytes += stack.live_bytes.load(Relaxed);
        objects += stack.live_objects.load(Relaxed);
    }
    (header.live.load(Relaxed), bytes, objects >> 16)
}

/// Every allocation is a sample, or few are; what is live is known at any time, and nothing stays.
fn profiled_model(heap: &Heap<Test>) {
    for mean in [1, 900, 40_000] {
        heap.cache.knobs.set(Id::ProfileBytes as usize, mean);
        heap.apply_profile();
        proptest!(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() }, |(ops in ops())| {
            Model::new(heap).run_all(&ops, |model| {
                if mean == 1 {
                    let bytes = model.live.values().map(|&(size, _)| size as u64).sum::<u64>();
                    let n = model.live.len() as u64;
                    assert_eq!(live_samples(heap), (n, bytes, n));
                }
            });
            prop_assert_eq!(live_samples(heap), (0, 0, 0));
            assert_empty(heap);
        });
    }
    let header = heap.profile.samples.header().expect("sampled");
    assert!(
        header.samples.load(Relaxed) > 1000 && header.lost_room.load(Relaxed) + header.lost_busy.load(Relaxed) == 0
    );
}

#[test]
fn samples_match_the_model_in_every_mode() {
    static HEAPS: [Heap<Test>; 3] = [const { Heap::new() }; 3];
    for (heap, mode) in HEAPS.iter().zip([Mode::Simulated, Mode::Fallback, Mode::Sequences]) {
        if open(heap, mode) {
            profiled_model(heap);
        }
    }
}
