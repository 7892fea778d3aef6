//! # The gate: a fork waits for the threads that are inside, and no thread waits for a fork
//!
//! ```text
//! enter:  room := me ──► a fork in flight? ── no ──► inside, until the room is empty again
//!                             │ yes
//!                             └─► room := empty; the caller does without (a heap: its side arena)
//!
//! fork:   asked += 1 ──► every room empty, but for its own? ──► sealed ──► fork ──► asked -= 1
//! ```
//! Whoever takes a lock of the engine, or has something in its hand that a forked child would miss, is inside. So while a fork is
//! in flight no lock is held and nothing is half done, but by frames of the forking thread itself: a signal's handler may
//! fork whatever it interrupted. Those frames go on in the parent and in the child, each in its own memory, with the
//! locks that they hold. Nobody inside waits for anything that a program holds, so a fork waits for microseconds (for a
//! slice of a purge at most), and a thread that finds the fork in flight goes its way at once (before that it waits with the
//! fork for those inside): nothing here can stand in a cycle of other people's locks.
//!
//! | room | its thread |
//! |---|---|
//! | 0 | none |
//! | thread pointer | inside |
//! | thread pointer, [`ABROAD`] | inside, in a system call that needs no lock and with no lock (see [`Gate::abroad`]), or outside ([`Gate::beside`]); or alone inside |
//!
//! A thread in a fork or a vfork, which is outside, has a note of that instead ([`FORKS`], [`VFORKS`]): what a child counts as its own. Not a
//! room: however many fork at a time, those that do not come in. So has one that waits for forks in flight, as it has no other way ([`LATE`]):
//! the next forks make way for it, a bounded time, or there might be no end to those in flight (see [`Gate::make_way`]).
//!
//! In a program of one thread our own threads come in *alone*: while nobody else is inside, and who wants in waits for
//! them. Else the program's thread could fork in a handler, above a frame with a lock that one of ours waits for.
//!
//! What memory looks like to a child is a cut that respects causes: a store that the child sees was made before any that
//! it does not see. (A thread that writes to a page that the kernel has protected for the copy waits until the copy is
//! whole.) So rooms that a child finds taken are those of threads that found the fork, or are about to.
//!
//! What a large request would do without is worth a moment, too: it may wait for a fork as long as that takes, and no longer
//! ([`Gate::enter_within`]): in a cycle of locks it is late, and goes its way. (No fork makes way for it.)
//!
//! Locks: `turn`, held by forks while they look, seal and open, and not while they wait. Cost: a compare-and-swap, a load and a store; in a process of
//! one thread loads and stores.

use super::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use super::atomic::{AtomicU32, AtomicUsize};
use super::lock::{Held, Owned};
use super::naps::{LOOK, Naps};
use super::sys;

/// Threads that can be inside at a time; more wait for one of them.
const ROOMS: usize = 128;
/// Forks that can be in flight at a time; more wait for one of them. Vforks have half of the notes, or none.
const NOTES: usize = 448;
/// Looks at most that a thread waits for a fork that is not yet in flight: a tenth of a second, with what timers add up to a quarter.
pub const SEAL_NAPS: u32 = 2000;
/// Looks at most that one of our threads waits for a program's only thread.
const OURS_NAPS: u32 = 10_000;
/// The state's bit while one of our threads is alone inside; forks in flight are counted above it.
const ALONE: u32 = 1;
const FORK: u32 = 2;
/// What [`Gate::sealed`] is: no fork is in flight, or it waits; nobody is inside; the same, but a frame has gone on since.
const OPEN: u32 = 0;
const SEALED: u32 = 1;
const STALE: u32 = 2;
/// See the table.
const ABROAD: usize = 1 << (usize::BITS - 1);
const FORKS: usize = 1 << (usize::BITS - 2);
const VFORKS: usize = 1 << (usize::BITS - 3);
const LATE: usize = 1 << (usize::BITS - 4);
const FLAGS: usize = ABROAD | FORKS | VFORKS | LATE;

/// A place for a thread, on a line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Room(AtomicUsize);

/// See the module. Open at first; zero bytes.
#[derive(Debug)]
#[repr(C)]
pub struct Gate {
    state: AtomicU32,
    /// Changes when a thread leaves that somebody waits for.
    left: AtomicU32,
    /// The program's threads that wait for one of ours: that is alone inside, or is to end.
    waits: AtomicU32,
    /// 1: this child was forked while somebody was inside; counted as a fork that never ends, here and in its children.
    torn: AtomicU32,
    /// [`OPEN`], [`SEALED`]: the fork in flight waits for nobody any more; or [`STALE`]. Changed in a fork's turn.
    sealed: AtomicU32,
    /// Our thread that is alone inside.
    alone: AtomicUsize,
    turn: Owned,
    /// Notes that are taken, or about to be.
    noted: AtomicU32,
    /// Vforks that have none.
    unnoted: AtomicU32,
    /// 1: a fork has made way and nobody came.
    vain: AtomicU32,
    /// How often the last fork in flight has ended.
    gaps: AtomicU32,
    notes: [AtomicUsize; NOTES],
    /// A process of one thread uses the first one, and touches no page for the others.
    rooms: [Room; ROOMS],
}

/// Bytes of a gate that a process of one thread touches, and its fork: those at the beginning. They should lie on one page: each that a process
/// writes is another fault, its own and of each child that it forks.
pub const TOUCHED: usize = core::mem::offset_of!(Gate, rooms) + size_of::<Room>();

/// The right to be inside.
#[derive(Debug)]
pub struct Inside<'a> {
    gate: &'a Gate,
    room: Option<&'a AtomicUsize>,
}

/// The right to be inside alone, for a thread of ours.
#[derive(Debug)]
pub struct Alone<'a> {
    gate: &'a Gate,
    room: &'a AtomicUsize,
}

/// The naps of a wait for the forks in flight: as many again when one has ended, but not for ever.
#[derive(Debug)]
struct Patience {
    looks: u32,
    state: u32,
    ends: usize,
    naps: Naps,
}

impl Patience {
    const fn of(looks: u32, ends: usize) -> Self {
        Self { looks, state: 0, ends, naps: Naps::within(looks) }
    }
    fn nap(&mut self, state: u32) -> Option<u64> {
        if state / FORK < self.state / FORK && self.ends > 0 {
            (self.ends, self.naps) = (self.ends - 1, Naps::within(self.looks));
        }
        self.state = state;
        self.naps.next()
    }
}

/// A note that this thread waits for the forks in flight.
#[derive(Debug)]
struct Late<'a> {
    gate: &'a Gate,
    is_noted: bool,
}

/// A vfork that has begun: how many notes of its thread stood below it, and whether it has one. (A register's, across the call.)
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Begun(u32);

/// How a thread of ours is inside.
#[derive(Debug)]
pub enum Ours<'a> {
    /// Beside others.
    Inside(Inside<'a>),
    /// In a program of one thread.
    Alone(Alone<'a>),
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// Nobody is inside.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            left: AtomicU32::new(0),
            waits: AtomicU32::new(0),
            torn: AtomicU32::new(0),
            sealed: AtomicU32::new(0),
            alone: AtomicUsize::new(0),
            turn: Owned::new(),
            noted: AtomicU32::new(0),
            unnoted: AtomicU32::new(0),
            vain: AtomicU32::new(0),
            gaps: AtomicU32::new(0),
            notes: [const { AtomicUsize::new(0) }; NOTES],
            rooms: [const { Room(AtomicUsize::new(0)) }; ROOMS],
        }
    }

    /// Comes in, unless a fork is in flight.
    #[inline]
    pub fn enter(&self) -> Option<Inside<'_>> {
        let Some(room) = self.find_room(sys::thread_pointer()) else { return self.enter_again() };
        // SeqCst, after the room was taken so: either this sees the fork or the fork sees the room.
        if self.state.load(SeqCst) == 0 {
            return Some(Inside { gate: self, room: Some(room) });
        }
        self.enter_late(room)
    }

    /// All rooms are taken. A thread that has one needs no other: forks wait for that. (It must not wait for others here, who may
    /// wait for a lock that it holds.)
    #[cold]
    #[inline(never)]
    fn enter_again(&self) -> Option<Inside<'_>> {
        if self.own() > 0 && self.state.load(SeqCst) == 0 {
            return Some(Inside { gate: self, room: None });
        }
        self.enter_late(self.take_room(sys::thread_pointer()))
    }

    /// A room of one's own, waited for.
    fn take_room(&self, me: usize) -> &AtomicUsize {
        let mut naps = Naps::for_ever();
        loop {
            if let Some(room) = self.find_room(me) {
                return room;
            }
            self.nap_for(naps.longer());
        }
    }

    /// A room of one's own.
    #[inline]
    fn find_room(&self, me: usize) -> Option<&AtomicUsize> {
        // Nobody else comes, but a handler, which leaves what it found.
        if sys::single_threaded()
            && let Some(Room(room)) = self.rooms.iter().find(|room| room.0.load(Relaxed) == 0)
        {
            room.store(me, Relaxed);
            return Some(room);
        }
        let first = (me >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - ROOMS.trailing_zeros());
        (0..ROOMS).map(|at| &self.rooms[(first + at) % ROOMS].0).find(|room| {
            // SeqCst: see `enter`.
            room.load(Relaxed) == 0 && room.compare_exchange(0, me, SeqCst, Relaxed).is_ok()
        })
    }

    #[cold]
    #[inline(never)]
    fn enter_late<'a>(&'a self, mut room: &'a AtomicUsize) -> Option<Inside<'a>> {
        let me = sys::thread_pointer();
        loop {
            let state = self.state.load(SeqCst);
            if state == 0 {
                return Some(Inside { gate: self, room: Some(room) });
            }
            self.vacate(room);
            if self.is_alone() {
                return Some(Inside { gate: self, room: None });
            }
            if state >= FORK {
                self.wait_for_seal();
                return None;
            }
            self.wait_for_alone(state);
            room = self.take_room(me);
        }
    }

    /// A fork wants to be, and waits for those inside, who wait for nobody: so may this thread, a moment, or it could keep the CPU from
    /// one of them for ever (real-time priorities). Once the fork is in flight nobody waits.
    fn wait_for_seal(&self) {
        for nap in Naps::within(SEAL_NAPS) {
            // Acquire: as a rule the fork is what it says; a stale word costs a nap.
            if self.sealed.load(Acquire) != OPEN || !self.is_forking() || self.is_inside() || self.is_forking_self() {
                return;
            }
            sys::futex_wait_for(&self.sealed, 0, nap);
        }
    }

    /// Comes in when the fork in flight is over, if that is within so many looks ([`SEAL_NAPS`] are a tenth of a second): for a caller
    /// whose way without costs as much as that; if it is more it has none, and each fork that ends is worth as many again. `None` at once
    /// where it would be in vain: for a thread that is inside, or forks itself.
    #[cold]
    #[inline(never)]
    pub fn enter_within(&self, looks: u32) -> Option<Inside<'_>> {
        let is_patient = looks > SEAL_NAPS;
        let (mut patience, mut late) = (Patience::of(looks, if is_patient { NOTES } else { 0 }), None);
        loop {
            let state = self.state.load(SeqCst);
            let nap = patience.nap(state)?;
            if self.is_inside() || self.is_forking_self() || self.is_torn() {
                return None;
            }
            if is_patient {
                late.get_or_insert_with(|| self.be_late());
                // (Where forks make no way any more there may be one in flight that does not end, and no end to the others.)
                patience.ends *= usize::from(self.vain.load(Relaxed) == 0);
            }
            if state >= FORK {
                sys::futex_wait_for(&self.state, state, nap);
            } else if let Some(inside) = self.enter() {
                return Some(inside);
            }
        }
    }

    fn vacate(&self, room: &AtomicUsize) {
        // Release: what was done inside is done before a fork.
        room.store(0, Release);
        // Relaxed: whoever waits looks again soon, told or not.
        if self.state.load(Relaxed) != 0 {
            self.tell();
        }
    }

    #[cold]
    fn tell(&self) {
        self.left.fetch_add(1, Relaxed);
        sys::futex_wake(&self.left, u32::MAX >> 1);
    }

    /// Sleeps a moment, or until somebody leaves.
    fn nap(&self) {
        self.nap_for(LOOK);
    }
    fn nap_for(&self, ns: u64) {
        sys::futex_wait_for(&self.left, self.left.load(Relaxed), ns);
    }

    fn wait_for_alone(&self, state: u32) {
        self.waits.fetch_add(1, Relaxed);
        sys::futex_wait_for(&self.state, state, LOOK);
        self.waits.fetch_sub(1, Relaxed);
    }

    /// Runs `body`, which waits for threads of ours: those inside make an end soon (see [`Gate::is_wanted`]).
    pub fn wanting(&self, body: impl FnOnce()) {
        // Relaxed: as in `is_wanted`.
        self.waits.fetch_add(1, Relaxed);
        body();
        self.waits.fetch_sub(1, Relaxed);
    }

    /// Comes in, when no fork is in flight but the calling thread's own. Not where a program may hold a lock that its fork wants, nor where
    /// it [is torn](Gate::is_torn).
    pub fn enter_patiently(&self) -> Inside<'_> {
        let mut late = None;
        loop {
            if let Some(inside) = self.enter() {
                return inside;
            }
            // A frame of this thread that is inside keeps forks away, and one that forks is alone unless there are two.
            let is_first = self.own() > 0 || self.own_notes(FORKS) > 0;
            let room = self.take_room(sys::thread_pointer());
            // SeqCst: see `enter`, and `fork_begin`.
            if is_first && self.state.load(SeqCst) & !ALONE <= FORK * self.own_notes(FORKS).max(1) {
                return Inside { gate: self, room: Some(room) };
            }
            self.vacate(room);
            late.get_or_insert_with(|| self.be_late());
            self.wait_for_forks();
        }
    }

    /// Until it is dropped forks that are not yet in flight make way for this thread.
    fn be_late(&self) -> Late<'_> {
        Late { gate: self, is_noted: self.note(LATE, &self.notes[..NOTES / 2]) }
    }

    /// Whether somebody waits for the forks in flight who has no other way.
    #[must_use]
    pub fn has_late(&self) -> bool {
        // Relaxed: as all of notes; a fork that has not seen one goes before it.
        self.noted.load(Relaxed) > 0 && self.notes.iter().any(|note| note.load(Relaxed) & LATE != 0)
    }

    /// Before a fork: who waits for those in flight comes in first, or forks that overlap without end would keep him out for ever. At once where it
    /// may be in vain, for this thread has a frame that is inside, waits, forks or vforks; else as long as forks end (one in flight may wait for a
    /// lock that this thread holds), once; and when one has waited in vain none does until somebody has come in.
    fn make_way(&self) {
        let (me, mut patience) = (sys::thread_pointer(), Patience::of(SEAL_NAPS, NOTES));
        // Relaxed, all but one: policy.
        let gaps = self.gaps.load(Relaxed);
        while self.has_late() && self.vain.load(Relaxed) == 0 {
            let is_mine = |note: &AtomicUsize| note.load(Relaxed) & !FLAGS == me;
            if self.is_inside() || self.is_torn() || self.notes.iter().any(is_mine) {
                return;
            }
            // Those in flight are others than it found. (Acquire: not the last of these, which has said so behind its end.)
            if self.gaps.load(Acquire) != gaps && self.is_forking() {
                return;
            }
            let Some(nap) = patience.nap(self.state.load(Relaxed)) else { return self.vain.store(1, Relaxed) };
            sys::futex_wait_for(&self.noted, self.noted.load(Relaxed), nap);
        }
    }

    /// Sleeps until no fork is in flight.
    pub fn wait_for_forks(&self) {
        let mut naps = Naps::for_ever();
        while let state @ FORK.. = self.state.load(SeqCst) {
            sys::futex_wait_for(&self.state, state, naps.longer());
        }
    }

    /// Whether a fork is in flight, or wants to be.
    #[inline]
    #[must_use]
    pub fn is_forking(&self) -> bool {
        self.state.load(SeqCst) >= FORK
    }

    /// Whether somebody waits for those inside: a thread that has much to do ends it, and one of ours goes on later.
    #[inline]
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        // Relaxed: a look.
        self.state.load(Relaxed) >= FORK || self.waits.load(Relaxed).cast_signed() > 0
    }

    /// Whether a frame of the calling thread is inside. Cost: a look at each room.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.own() > 0
    }

    /// Whether the calling thread is alone inside.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        // Relaxed: only this thread writes its own name.
        self.state.load(Relaxed) & ALONE != 0 && self.alone.load(Relaxed) == sys::thread_pointer()
    }

    /// Comes in for a thread of ours, when no fork is in flight: alone, if the program has one thread. `None` after about a second: the
    /// program's thread is stopped inside, or has ended there.
    pub fn enter_ours(&self) -> Option<Ours<'_>> {
        for _ in 0..OURS_NAPS {
            if !sys::program_is_single() {
                return Some(Ours::Inside(self.enter_patiently()));
            }
            if let Some(alone) = self.enter_alone() {
                return Some(Ours::Alone(alone));
            }
            self.nap();
        }
        None
    }

    /// Comes in and lets nobody else in until it leaves, for a thread of ours in a program of one thread; `None` if somebody
    /// is inside, or a fork is in flight.
    pub fn enter_alone(&self) -> Option<Alone<'_>> {
        // A room for which forks wait from now on, whether the thread is alone or abroad.
        let room = self.take_room(sys::thread_pointer());
        room.swap(sys::thread_pointer() | ABROAD, SeqCst);
        if self.begin_alone(false) {
            return Some(Alone { gate: self, room });
        }
        self.vacate(room);
        None
    }

    /// The thread has a room. One that `returns` from abroad may be what a fork waits for.
    fn begin_alone(&self, returns: bool) -> bool {
        let state = if returns { self.state.load(Relaxed) & !ALONE } else { 0 };
        // SeqCst, before the rooms are looked at: as in `enter`, the other way round.
        if self.state.compare_exchange(state, state | ALONE, SeqCst, Relaxed).is_err() {
            return false;
        }
        self.alone.store(sys::thread_pointer(), Relaxed);
        let is_inside = |Room(room): &Room| matches!(room.load(SeqCst), who if who != 0 && who & FLAGS == 0);
        if self.rooms.iter().any(is_inside) {
            self.end_alone();
            return false;
        }
        true
    }

    fn end_alone(&self) {
        self.alone.store(0, Relaxed);
        // Release: as in `vacate`.
        let state = self.state.fetch_sub(ALONE, Release);
        if state >= FORK || self.waits.load(Relaxed) > 0 {
            sys::futex_wake(&self.state, u32::MAX >> 1);
            self.tell();
        }
    }

    /// Runs `body`, which takes no lock, for a thread that is outside: only a fork waits for it, as for who is abroad.
    pub fn beside<T>(&self, body: impl FnOnce() -> T) -> T {
        let mut late = None;
        loop {
            let room = self.take_room(sys::thread_pointer() | ABROAD);
            // SeqCst, after the room was taken so: as in `enter`.
            if self.state.load(SeqCst) < FORK {
                let done = body();
                self.vacate(room);
                return done;
            }
            self.vacate(room);
            late.get_or_insert_with(|| self.be_late());
            self.wait_for_forks();
        }
    }

    /// Runs `body` while others may be inside. It takes no lock, and the caller, which is inside, holds none. A fork waits for
    /// it all the same, unless a handler began it above a frame that is inside; one that nobody told of does not.
    pub fn abroad<T>(&self, body: impl FnOnce() -> T) -> T {
        let me = sys::thread_pointer();
        if self.is_alone() {
            self.end_alone();
            let result = body();
            let mut naps = 0;
            while !self.begin_alone(true) {
                if !sys::program_is_single()
                    && let Some(Room(room)) = self.rooms.iter().find(|Room(room)| room.load(Relaxed) == me | ABROAD)
                {
                    // From now on beside others: it might never be alone again.
                    self.come_back(room, me);
                    break;
                }
                self.nap();
                naps += 1;
                // The program's thread may have ended inside, which it leaves to nobody: with this thread the process ends.
                if naps % OURS_NAPS == 0 {
                    sys::end_with_leader(|| {
                        self.rooms
                            .iter()
                            .filter(|Room(room)| room.load(Relaxed) == me | ABROAD)
                            .for_each(|Room(room)| self.vacate(room));
                    });
                }
            }
            return result;
        }
        let Some(Room(room)) = self.rooms.iter().find(|Room(room)| room.load(Relaxed) == me) else { return body() };
        // Release: what was done inside is seen by a thread that comes in alone.
        room.store(me | ABROAD, Release);
        let result = body();
        self.come_back(room, me);
        result
    }

    fn come_back(&self, room: &AtomicUsize, me: usize) {
        loop {
            // SeqCst: as in `enter`. (A fork that wants to be waits for this room.)
            room.swap(me, SeqCst);
            let state = self.state.load(SeqCst);
            if state & ALONE == 0 {
                return;
            }
            room.store(me | ABROAD, Release);
            self.tell();
            self.wait_for_alone(state);
        }
    }

    /// Before a fork: from now on nobody comes in, and when this returns nobody is inside but frames of the calling thread. The
    /// first of several forks for which that is so runs `seal` then. Signals are blocked.
    pub fn fork_begin(&self, seal: impl FnOnce()) {
        self.fork_begin_within(
            u32::MAX,
            |again| {
                if !again {
                    seal()
                }
            },
            || (),
        );
    }

    /// The same, unless somebody is still inside after so many looks, of which [`SEAL_NAPS`] are a tenth of a second: a thread that a
    /// program has stopped there in a handler. Then false, and as it was: so the last of several forks runs `open` here, too. `seal` is told
    /// whether all is sealed already, and a frame went on inside since: one above which a handler forked.
    pub fn fork_begin_within(&self, looks: u32, seal: impl FnOnce(bool), open: impl FnOnce()) -> bool {
        // Before its turn: who waits must not keep others from ending.
        self.make_way();
        let mut naps = Naps::for_ever();
        while !self.note(FORKS, &self.notes) {
            sys::futex_wait_for(&self.noted, self.noted.load(Relaxed), naps.longer());
        }
        // SeqCst: see `enter`.
        self.state.fetch_add(FORK, SeqCst);
        let me = sys::thread_pointer();
        // (Only there do our threads make way for a frame that a handler interrupted.)
        let interrupted = self.own() > 0 && sys::program_is_single();
        let is_awaited = |Room(room): &Room| {
            // SeqCst: see `enter`. It acquires what was done inside.
            let who = room.load(SeqCst);
            who != 0 && who & !FLAGS != me && (who & FLAGS == 0 || who & FLAGS == ABROAD && !interrupted)
        };
        let mut left = looks;
        loop {
            let turn = self.turn.lock();
            if !self.rooms.iter().any(is_awaited) {
                match self.sealed.load(Relaxed) {
                    OPEN => seal(false),
                    STALE => seal(true),
                    _ => return true,
                }
                self.sealed.store(SEALED, Release);
                sys::futex_wake(&self.sealed, u32::MAX >> 1);
                return true;
            }
            if left == 0 {
                self.end_fork(turn, open);
                sys::futex_wake(&self.sealed, u32::MAX >> 1);
                return false;
            }
            // (Not in its turn: a frame inside may be one above which a handler forks.)
            drop(turn);
            left -= u32::from(looks != u32::MAX);
            self.nap();
        }
    }

    /// After a fork, in the parent or in the child, where there is no other thread. The last of several runs `open`, and
    /// then others come in. Whether what threads of the parent had in hand abroad is lost (in a child). Signals are blocked.
    pub fn fork_end(&self, child: bool, open: impl FnOnce()) -> bool {
        let lost = child && self.inherit();
        self.end_fork(self.turn.lock(), open);
        lost
    }

    fn end_fork(&self, turn: Held<'_>, open: impl FnOnce()) {
        self.forget(FORKS);
        let is_last = self.state.load(Relaxed) & !ALONE == FORK;
        if is_last {
            if self.sealed.load(Relaxed) != OPEN {
                open();
            }
            self.sealed.store(OPEN, Relaxed);
        } else if self.own() > 0 && self.sealed.load(Relaxed) == SEALED {
            // Its frame goes on, and another fork waits for it.
            self.sealed.store(STALE, Relaxed);
        }
        // SeqCst: see `Heap::free_aside`. It releases: a thread that comes in finds all open.
        self.state.fetch_sub(FORK, SeqCst);
        // Release, behind the state and before the turn of the next: see `make_way`.
        self.gaps.fetch_add(u32::from(is_last), Release);
        drop(turn);
        sys::futex_wake(&self.state, u32::MAX >> 1);
    }

    /// In a child: only this thread is here, with its own frames; whether others had something in hand.
    pub(crate) fn inherit(&self) -> bool {
        let (me, mut lost) = (sys::thread_pointer(), false);
        self.turn.inherit();
        // Relaxed, as all here: there is nobody else.
        for Room(room) in &self.rooms {
            let who = room.load(Relaxed);
            // (A page that is not written stays the parent's, too.)
            if who != 0 && who & !FLAGS != me {
                lost |= who & ABROAD != 0;
                room.store(0, Relaxed);
            }
        }
        let mut noted = 0;
        for note in &self.notes {
            let who = note.load(Relaxed);
            let is_mine = who & !FLAGS == me;
            noted += u32::from(is_mine);
            if who != 0 && !is_mine {
                note.store(0, Relaxed);
            }
        }
        self.noted.store(noted, Relaxed);
        self.unnoted.store(0, Relaxed);
        self.vain.store(0, Relaxed);
        self.alone.store(0, Relaxed);
        self.waits.store(0, Relaxed);
        self.state.store(FORK * (self.own_notes(FORKS) + self.torn.load(Relaxed)), Relaxed);
        lost
    }

    /// In a child that was forked without [`Gate::fork_begin`], and is alone: whether somebody was inside, and may have left a lock held
    /// or something half done. Then nobody comes in ever again: the child does without. Signals are blocked.
    ///
    /// Who was abroad held no lock, and what he had in hand is lost, as at a fork that a handler began. (The cut respects causes: a
    /// store that he made inside is seen together with the room, or the state, that said so before.)
    pub fn inherit_unasked(&self) -> bool {
        let me = sys::thread_pointer();
        let is_inside =
            |Room(room): &Room| matches!(room.load(Relaxed), who if who != 0 && who & FLAGS == 0 && who != me);
        let alone = self.state.load(Relaxed) & ALONE != 0 && !self.is_alone();
        let torn = alone || self.rooms.iter().any(is_inside);
        self.torn.fetch_or(u32::from(torn), Relaxed);
        self.inherit();
        self.sealed.store(self.torn.load(Relaxed), Relaxed);
        self.is_torn()
    }

    /// Whether nobody comes in ever again: see [`Gate::inherit_unasked`].
    #[must_use]
    pub fn is_torn(&self) -> bool {
        // Relaxed: it was said before this child had a second thread.
        self.torn.load(Relaxed) != 0
    }

    /// Whether a frame of the calling thread forks.
    #[must_use]
    pub fn is_forking_self(&self) -> bool {
        self.own_notes(FORKS) > 0
    }

    /// Before a vfork, until [`Gate::vfork_end`], which is to be told what this returns. Signals are blocked. Waits for nobody, and leaves
    /// forks some notes.
    ///
    /// The child has its parent's thread pointer, and what it notes stands above its parent's: if it is killed in a vfork of its own, the
    /// parent's end forgets both. By then the grandchild is over, or has no stack to do anything on. One that is `apart`, on a stack of its
    /// own, may go on: so it has no note in the child of another.
    #[must_use]
    pub fn vfork_begin(&self, apart: bool) -> Begun {
        let before = self.own_notes(VFORKS);
        let is_noted = !(apart && self.own_vforks() > 0) && self.note(VFORKS, &self.notes[..NOTES / 2]);
        if !is_noted {
            self.unnoted.fetch_add(1, Relaxed);
        }
        Begun(before << 1 | u32::from(is_noted))
    }
    /// After a vfork, in the parent; how many are over by that. Signals are blocked.
    pub fn vfork_end(&self, Begun(begun): Begun) -> u32 {
        let noted = self.own_notes(VFORKS).saturating_sub(begun >> 1);
        (0..noted).for_each(|_| _ = self.forget(VFORKS));
        if begun & 1 != 0 {
            return noted;
        }
        // (In the child of a fork that a handler made meanwhile there is none.)
        if self.unnoted.load(Relaxed) > 0 {
            self.unnoted.fetch_sub(1, Relaxed);
        }
        noted + 1
    }
    /// Vforks that the calling thread's own frames have in flight; one more where some have no note, which may be its own (else it is
    /// one too many, and a child that opens nothing).
    pub fn own_vforks(&self) -> u32 {
        self.own_notes(VFORKS) + u32::from(self.unnoted.load(Relaxed) > 0)
    }

    /// A note, one of these, that says what this thread is at; false where all are taken.
    fn note(&self, flag: usize, notes: &[AtomicUsize]) -> bool {
        let mine = sys::thread_pointer() | flag;
        // Relaxed, as all of notes: only who wrote one looks for it, and its child, to which all is told.
        self.noted.fetch_add(1, Relaxed);
        let is_taken =
            |note: &AtomicUsize| note.load(Relaxed) == 0 && note.compare_exchange(0, mine, Relaxed, Relaxed).is_ok();
        let is_noted = notes.iter().any(is_taken);
        if !is_noted {
            self.noted.fetch_sub(1, Relaxed);
        }
        is_noted
    }
    /// False if there was none.
    fn forget(&self, flag: usize) -> bool {
        let mine = sys::thread_pointer() | flag;
        let Some(note) = self.notes.iter().find(|note| note.load(Relaxed) == mine) else { return false };
        note.store(0, Relaxed);
        self.noted.fetch_sub(1, Relaxed);
        true
    }
    /// Notes of this thread with this flag.
    fn own_notes(&self, flag: usize) -> u32 {
        if self.noted.load(Relaxed) == 0 {
            return 0;
        }
        let mine = sys::thread_pointer() | flag;
        self.notes.iter().filter(|note| note.load(Relaxed) == mine).count() as u32
    }
    /// Rooms in which this thread is inside.
    fn own(&self) -> u32 {
        let me = sys::thread_pointer();
        self.rooms.iter().filter(|Room(room)| room.load(Relaxed) == me).count() as u32
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(room) = self.room {
            self.gate.vacate(room);
        }
    }
}

impl Drop for Late<'_> {
    fn drop(&mut self) {
        // (It has come in, or had no time left.)
        if !self.gate.is_forking() {
            self.gate.vain.store(0, Relaxed);
        }
        if self.is_noted && self.gate.forget(LATE) {
            sys::futex_wake(&self.gate.noted, u32::MAX >> 1);
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // (Or it came back beside others.)
        if self.gate.is_alone() {
            self.gate.end_alone();
        }
        self.gate.vacate(self.room);
    }
}

#[cfg(test)]
mod tests;
