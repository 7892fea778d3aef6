//! # What the live view shows, and what keys do to it
//!
//! No terminal and no clock in here: a [`Sample`] comes in, a key comes in, an [`Action`] may come out.

use super::look::Look;
use crate::observe::latency::Latency;
use crate::observe::show::{self, Areas, Set};
use crate::observe::text;
use crate::observe::view::{Slab, View};
use allotment_engine::stat::Event;
use allotment_engine::stat::board::Section;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::VecDeque;
use std::time::Duration;

/// Points of a graph that are kept.
const HISTORY: usize = 512;
/// Intervals to choose from, in ms.
const INTERVALS: [u64; 7] = [100, 250, 500, 1000, 2000, 5000, 10_000];

/// One look, with what takes a moment to make of it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The look.
    pub view: View,
    /// What each CPU holds.
    pub sets: Vec<Set>,
    /// Areas.
    pub areas: Areas,
    /// Size classes.
    pub slabs: Vec<Slab>,
    /// Times.
    pub latencies: Vec<Latency>,
}

impl Sample {
    /// Of a look.
    pub fn of(view: View) -> Self {
        Self {
            sets: show::sets(view.texts.text(Section::Sets)),
            areas: show::areas(view.texts.text(Section::Vmallocinfo)),
            slabs: view.slabs(),
            latencies: view.latencies(),
            view,
        }
    }
    /// Resident memory.
    pub fn resident(&self) -> u64 {
        self.view.report.end.running.and_then(|running| running.resident).unwrap_or(0)
    }
}

/// What a pane shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pane {
    /// Memory, rates, CPUs.
    Overview,
    /// Size classes.
    Classes,
    /// Areas.
    Areas,
    /// Times.
    Latency,
}

impl Pane {
    /// All of them, by their keys.
    pub const ALL: [Self; 4] = [Self::Overview, Self::Classes, Self::Areas, Self::Latency];
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Classes => "classes",
            Self::Areas => "areas",
            Self::Latency => "latency",
        }
    }
}

/// What classes are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Bytes in use.
    Bytes,
    /// Objects in use.
    Objects,
    /// Allocations a second.
    Rate,
}

impl Sort {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Objects => "objects",
            Self::Rate => "rate",
        }
    }
    const fn next(self) -> Self {
        match self {
            Self::Bytes => Self::Objects,
            Self::Objects => Self::Rate,
            Self::Rate => Self::Bytes,
        }
    }
}

/// What a key asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// To end.
    Quit,
    /// To drain all CPUs.
    Drain,
    /// To purge.
    Purge,
    /// To set (or print) a knob.
    Tune(String),
}

/// Everything that is drawn.
#[derive(Clone, Debug)]
pub struct State {
    /// The last look.
    pub now: Sample,
    /// The one before.
    pub before: Option<Sample>,
    /// Bytes in use, oldest first.
    pub in_use: VecDeque<u64>,
    /// Resident bytes.
    pub resident: VecDeque<u64>,
    /// Which pane is shown.
    pub pane: Pane,
    /// How classes are sorted.
    pub sort: Sort,
    /// Areas by address instead of by size.
    pub by_address: bool,
    /// First row of a table.
    pub scroll: usize,
    /// Looks are not shown.
    pub paused: bool,
    /// Between looks.
    pub interval: Duration,
    /// The keys are shown.
    pub help: bool,
    /// What is being typed.
    pub prompt: Option<String>,
    /// What was said last.
    pub message: String,
    /// The process is gone.
    pub ended: Option<String>,
    /// What the terminal can show.
    pub look: Look,
}

impl State {
    /// With the first look.
    pub fn new(now: Sample, interval: Duration, look: Look) -> Self {
        let mut state = Self {
            before: None,
            in_use: VecDeque::new(),
            resident: VecDeque::new(),
            pane: Pane::Overview,
            sort: Sort::Bytes,
            by_address: false,
            scroll: 0,
            paused: false,
            interval,
            help: false,
            prompt: None,
            message: String::new(),
            ended: None,
            look,
            now,
        };
        state.note();
        state
    }

    /// A new look.
    pub fn take(&mut self, sample: Sample) {
        if self.paused {
            return;
        }
        self.before = Some(std::mem::replace(&mut self.now, sample));
        self.note();
    }

    fn note(&mut self) {
        let values = [self.now.view.report.memory.in_use, self.now.resident()];
        for (history, value) in [&mut self.in_use, &mut self.resident].into_iter().zip(values) {
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(value);
        }
    }

    /// What something that was asked for came to.
    pub fn said(&mut self, line: String) {
        self.message = line;
    }

    /// What stands at the bottom, if something does.
    pub fn notice(&self) -> Option<String> {
        if let Some(line) = &self.ended {
            return Some(format!("{line}: this is what was seen last; q quits"));
        }
        if !self.message.is_empty() {
            return Some(self.message.clone());
        }
        text::caveat(&self.now.view)
    }

    /// A key.
    pub fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return matches!(key.code, KeyCode::Char('c')).then_some(Action::Quit);
        }
        if let Some(mut word) = self.prompt.take() {
            match key.code {
                KeyCode::Esc => return None,
                KeyCode::Enter => return (!word.is_empty()).then(|| self.ask(Action::Tune(word))),
                KeyCode::Backspace => {
                    word.pop();
                }
                KeyCode::Char(letter) => word.push(letter),
                _ => {}
            }
            self.prompt = Some(word);
            return None;
        }
        let help = std::mem::take(&mut self.help);
        match key.code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('h' | '?') => self.help = !help,
            // (Any other key has closed the help.)
            _ if help => {}
            KeyCode::Esc => self.message.clear(),
            KeyCode::Char('d') => return Some(self.ask(Action::Drain)),
            KeyCode::Char('p') => return Some(self.ask(Action::Purge)),
            KeyCode::Char('t') => self.prompt = Some(String::new()),
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('s') => {
                match self.pane {
                    Pane::Areas => self.by_address = !self.by_address,
                    _ => self.sort = self.sort.next(),
                }
                self.scroll = 0;
            }
            KeyCode::Char('+') => self.pace(true),
            KeyCode::Char('-') => self.pace(false),
            KeyCode::Char(digit @ '1'..='4') => self.show(digit as usize - '1' as usize),
            KeyCode::Tab | KeyCode::Right => self.show((self.pane as usize + 1) % Pane::ALL.len()),
            KeyCode::BackTab | KeyCode::Left => self.show((self.pane as usize + Pane::ALL.len() - 1) % Pane::ALL.len()),
            KeyCode::Down => self.scroll += 1,
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll += 10,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        self.scroll = self.scroll.min(self.rows().saturating_sub(1));
        None
    }

    fn show(&mut self, at: usize) {
        self.pane = Pane::ALL[at];
        self.scroll = 0;
    }

    fn ask(&mut self, action: Action) -> Action {
        self.message = match &action {
            Action::Drain => "draining…".into(),
            Action::Purge => "purging…".into(),
            Action::Tune(word) => format!("{word}…"),
            Action::Quit => String::new(),
        };
        action
    }

    fn pace(&mut self, longer: bool) {
        let now = self.interval.as_millis() as u64;
        let next = if longer {
            INTERVALS.into_iter().find(|&ms| ms > now)
        } else {
            INTERVALS.into_iter().rev().find(|&ms| ms < now)
        };
        self.interval = next.map_or(self.interval, Duration::from_millis);
    }

    /// Rows of the table that can be scrolled.
    fn rows(&self) -> usize {
        match self.pane {
            Pane::Overview | Pane::Latency => 0,
            Pane::Classes => self.classes().len(),
            Pane::Areas => self.now.areas.areas.len(),
        }
    }

    /// Something counted, a second.
    fn rate(&self, of: impl Fn(&Sample) -> u64) -> f64 {
        let Some(before) = &self.before else { return 0.0 };
        let ns = self.now.view.now_ns.saturating_sub(before.view.now_ns);
        if ns == 0 { 0.0 } else { of(&self.now).saturating_sub(of(before)) as f64 * 1e9 / ns as f64 }
    }

    /// Allocations of objects a second.
    pub fn allocs(&self) -> f64 {
        self.rate(|sample| sample.view.report.operations.allocs)
    }
    /// Frees of them.
    pub fn frees(&self) -> f64 {
        self.rate(|sample| sample.view.report.operations.frees)
    }
    /// Allocations of areas a second.
    pub fn areas_made(&self) -> f64 {
        self.event(Event::AreaAlloc) + self.event(Event::AreaReuse)
    }
    /// An event, a second.
    pub fn event(&self, event: Event) -> f64 {
        self.rate(|sample| sample.view.snapshot.event(event))
    }

    /// The classes that are used, as they are sorted, with allocations and frees a second.
    pub fn classes(&self) -> Vec<(&Slab, f64, f64)> {
        let of = |sample: &Sample, size: u64, which: fn(&Slab) -> u64| {
            sample.slabs.iter().find(|slab| slab.objsize == size).map_or(0, which)
        };
        let mut rows: Vec<(&Slab, f64, f64)> = self
            .now
            .slabs
            .iter()
            .filter(|slab| slab.allocs | slab.num_slabs != 0)
            .map(|slab| {
                let rate = |which| self.rate(|sample| of(sample, slab.objsize, which));
                (slab, rate(|slab| slab.allocs), rate(|slab| slab.frees))
            })
            .collect();
        match self.sort {
            Sort::Bytes => rows.sort_by_key(|row| std::cmp::Reverse(row.0.active_objs.saturating_mul(row.0.objsize))),
            Sort::Objects => rows.sort_by_key(|row| std::cmp::Reverse(row.0.active_objs)),
            Sort::Rate => rows.sort_by(|a, b| b.1.total_cmp(&a.1)),
        }
        rows
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::observe::view::tests::{fabric, view};

    /// Two looks, two seconds apart.
    pub fn state() -> State {
        let mut state = State::new(Sample::of(view(&fabric())), Duration::from_secs(1), Look::plain());
        let mut later = fabric();
        later.ops(0, 4, 104_000, 42_000);
        later.event(0, Event::AreaAlloc, 10);
        let mut later = view(&later);
        later.now_ns += 2_000_000_000;
        state.take(Sample::of(later));
        state
    }

    fn press(state: &mut State, letters: &str) -> Option<Action> {
        letters.chars().map(|letter| state.key(KeyCode::Char(letter).into())).last().flatten()
    }

    #[test]
    fn rates_are_of_the_time_between_looks() {
        let state = state();
        assert_eq!((state.allocs(), state.frees(), state.areas_made()), (2000.0, 1000.0, 5.0));
        let classes = state.classes();
        assert_eq!((classes[0].0.objsize, classes[0].1, classes[0].2), (64, 2000.0, 1000.0));
        assert_eq!((state.in_use.len(), state.resident.len()), (2, 2));
    }

    #[test]
    fn keys_do_what_the_help_says() {
        let mut state = state();
        assert_eq!(press(&mut state, "d"), Some(Action::Drain));
        assert!(state.notice().is_some_and(|line| line.contains("draining")));
        state.said("drained 1 B".into());
        assert_eq!(state.notice().as_deref(), Some("drained 1 B"));
        assert_eq!(press(&mut state, "p"), Some(Action::Purge));
        assert_eq!(press(&mut state, "tdrain=offx"), None);
        assert_eq!(state.prompt.as_deref(), Some("drain=offx"));
        state.key(KeyCode::Backspace.into());
        assert_eq!(state.key(KeyCode::Enter.into()), Some(Action::Tune("drain=off".into())));
        assert_eq!(state.prompt, None);
        press(&mut state, "tq");
        assert_eq!((state.key(KeyCode::Esc.into()), state.prompt.clone()), (None, None));
        press(&mut state, "2s");
        assert_eq!((state.pane, state.sort), (Pane::Classes, Sort::Objects));
        state.key(KeyCode::Tab.into());
        assert_eq!(state.pane, Pane::Areas);
        press(&mut state, "s");
        assert!(state.by_address);
        press(&mut state, " ");
        let seen = state.in_use.len();
        state.take(state.now.clone());
        assert!(state.paused && state.in_use.len() == seen);
        press(&mut state, " ++");
        assert_eq!((state.paused, state.interval), (false, Duration::from_secs(5)));
        press(&mut state, "-----------");
        assert_eq!(state.interval, Duration::from_millis(100));
        press(&mut state, "h");
        assert!(state.help);
        // Any key closes it and does nothing else.
        assert_eq!(press(&mut state, "d"), None);
        assert!(!state.help);
        assert_eq!(press(&mut state, "q"), Some(Action::Quit));
        assert_eq!(state.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Action::Quit));
    }

    #[test]
    fn nothing_is_scrolled_past_its_end() {
        let mut state = state();
        press(&mut state, "2");
        (0..100).for_each(|_| {
            state.key(KeyCode::PageDown.into());
        });
        assert_eq!(state.scroll, state.classes().len() - 1);
        state.key(KeyCode::Home.into());
        assert_eq!(state.scroll, 0);
    }

    #[test]
    fn history_is_bounded() {
        let mut state = state();
        for _ in 0..HISTORY * 2 {
            state.take(state.now.clone());
        }
        assert_eq!(state.in_use.len(), HISTORY);
    }
}
