//! # A profile with names
//!
//! ```text
//!  a process's samples ─ symbols ─┐
//!                                 ├─► Named ─► text, folded stacks, flame graph
//!  a file in pprof's format ──────┘     └─ less another Named: what one has more than the other
//! ```
//! Stacks of functions instead of addresses, the allocator's own left out. So two profiles can be compared
//! whose addresses have nothing in common: of two processes, of two versions of a program.

use super::read::{Amount, Profile};
use super::symbols::{self, Function, Symbols};
use crate::term::printable;
use inferno::flamegraph::color::{BasicPalette, Palette};
use inferno::flamegraph::{self, Options};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// One stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Innermost first.
    pub functions: Vec<Function>,
    /// Ever.
    pub allocated: Amount,
    /// Not freed.
    pub live: Amount,
    /// What was taken off for a difference: allocated, not freed.
    pub base: [Amount; 2],
}

/// All stacks.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// As in [`Profile`]; 0: not known.
    pub pid: u32,
    /// As in [`Profile`].
    pub mean: u64,
    /// As in [`Profile`].
    pub ended: bool,
    /// Whether every allocation is in it (of a difference: in both).
    pub is_exact: bool,
    /// Samples taken, if it is known, and all are of one profile.
    pub samples: Option<u64>,
    /// Samples for want of room, in signal handlers, and the bytes that they would have stood for.
    pub lost: [u64; 3],
    /// Stacks, several of which may be of the same functions.
    pub stacks: Vec<Stack>,
}

/// Which amount of a stack is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// What was ever allocated.
    Allocated,
    /// What is in use.
    Live,
}

impl Named {
    /// Finds the names.
    pub fn of(profile: &Profile, symbols: &mut Symbols) -> Self {
        let named = |stack: &super::read::Stack| Stack {
            functions: symbols::callers(&stack.frames, symbols)
                .iter()
                .flat_map(|&frame| symbols.at(frame).to_vec())
                .collect(),
            allocated: stack.allocated,
            live: stack.live,
            base: Default::default(),
        };
        Self {
            pid: profile.pid,
            mean: profile.mean,
            ended: profile.ended,
            is_exact: profile.mean == 1,
            samples: Some(
                profile.stacks.iter().fold(0, |sum, stack| sum.saturating_add(stack.allocated.samples.unsigned_abs())),
            ),
            lost: [profile.lost_room, profile.lost_busy, profile.lost_bytes],
            stacks: profile.stacks.iter().map(named).collect(),
        }
    }

    /// All stacks together: ever, and not freed.
    pub fn totals(&self) -> (Amount, Amount) {
        let none = Amount::default();
        self.stacks
            .iter()
            .fold((none, none), |(allocated, live), stack| (allocated.plus(stack.allocated), live.plus(stack.live)))
    }

    /// What this has more than `base`, stack by stack of the same functions (lines may have moved).
    pub fn less(self, base: &Self) -> Self {
        type Key = Vec<String>;
        let key = |stack: &Stack| -> Key { stack.functions.iter().map(|function| function.name.clone()).collect() };
        let mut all: BTreeMap<Key, Stack> = BTreeMap::new();
        let Self { stacks, .. } = self;
        for stack in stacks {
            let sum =
                all.entry(key(&stack)).or_insert_with(|| Stack { functions: stack.functions, ..Stack::default() });
            sum.allocated = sum.allocated.plus(stack.allocated);
            sum.live = sum.live.plus(stack.live);
        }
        for stack in &base.stacks {
            let sum = all
                .entry(key(stack))
                .or_insert_with(|| Stack { functions: stack.functions.clone(), ..Stack::default() });
            sum.base = [sum.base[0].plus(stack.allocated), sum.base[1].plus(stack.live)];
        }
        let stacks = all.into_values().map(|stack| Stack {
            allocated: stack.allocated.since(stack.base[0]),
            live: stack.live.since(stack.base[1]),
            ..stack
        });
        Self { stacks: stacks.collect(), is_exact: self.is_exact && base.is_exact, samples: None, lost: [0; 3], ..self }
    }

    /// Folded stacks, outermost function first: `main;work;read 4096`, or with two numbers (before and after) for a
    /// difference. Sorted, each stack once; stacks of nothing are left out.
    pub fn folded(&self, which: Which, is_difference: bool) -> Vec<String> {
        let mut all: BTreeMap<String, [i64; 2]> = BTreeMap::new();
        for stack in &self.stacks {
            let (more, base) = match which {
                Which::Allocated => (stack.allocated, stack.base[0]),
                Which::Live => (stack.live, stack.base[1]),
            };
            let numbers = all.entry(line(&stack.functions)).or_default();
            numbers[0] = numbers[0].saturating_add(base.bytes);
            numbers[1] = numbers[1].saturating_add(base.bytes.saturating_add(more.bytes));
        }
        let shown = |(stack, numbers): (String, [i64; 2])| {
            // (An estimate of what is left of what was there before `--seconds` may be below zero.)
            let [before, after] = numbers.map(|number| number.max(0));
            match (is_difference, before, after) {
                (true, 0, 0) | (false, _, 0) => None,
                (true, ..) => Some(format!("{stack} {before} {after}")),
                (false, ..) => Some(format!("{stack} {after}")),
            }
        };
        all.into_iter().filter_map(shown).collect()
    }
}

/// Functions as one word of folded stacks.
fn line(functions: &[Function]) -> String {
    // `;` is between functions, and a number at the end is the amount.
    let word = |function: &Function| printable(&function.name).replace(';', ":");
    let names: Vec<String> = functions.iter().rev().map(word).collect();
    if names.is_empty() { "(no stack)".to_owned() } else { names.join(";") }
}

/// A flame graph of folded stacks.
///
/// # Errors
/// Those of `out`; there being nothing to draw.
pub fn draw(lines: &[String], title: &str, which: Which, is_difference: bool, out: impl Write) -> io::Result<()> {
    if lines.is_empty() {
        return Err(io::Error::other("there is nothing to draw"));
    }
    let mut options = Options::default();
    options.title = printable(title);
    options.subtitle = Some(
        match (which, is_difference) {
            (Which::Live, false) => "bytes in use, by who allocated them",
            (Which::Allocated, false) => "bytes allocated, by whom",
            (Which::Live, true) => "bytes in use; red: more than before, blue: less",
            (Which::Allocated, true) => "bytes allocated; red: more than before, blue: less",
        }
        .to_owned(),
    );
    options.count_name = "bytes".to_owned();
    options.name_type = "Function:".to_owned();
    options.colors = Palette::Basic(BasicPalette::Mem);
    options.deterministic = true;
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(names: &[&str], allocated: i64, live: i64) -> Stack {
        let amount = |bytes: i64| Amount { samples: 1, bytes, objects: bytes << 16 };
        let functions = names.iter().map(|&name| Function { name: name.into(), ..Function::default() }).collect();
        Stack { functions, allocated: amount(allocated), live: amount(live), base: Default::default() }
    }
    fn profile(stacks: Vec<Stack>) -> Named {
        Named { pid: 1, mean: 1, stacks, ..Named::default() }
    }

    #[test]
    fn stacks_are_folded_from_the_outside() {
        let named = profile(vec![
            stack(&["b;\u{1b}", "main"], 9, 5),
            stack(&["a", "main"], 7, 0),
            stack(&["b;\u{1b}", "main"], 1, 1),
        ]);
        assert_eq!(named.folded(Which::Live, false), ["main;b:? 6"]);
        assert_eq!(named.folded(Which::Allocated, false), ["main;a 7", "main;b:? 10"]);
        assert_eq!(profile(vec![stack(&[], 1, 1)]).folded(Which::Live, false), ["(no stack) 1"]);
    }

    #[test]
    fn a_difference_is_by_names_and_knows_what_is_gone() {
        let before = profile(vec![stack(&["a", "main"], 10, 10), stack(&["gone", "main"], 5, 5)]);
        let after =
            profile(vec![stack(&["a", "main"], 20, 12), stack(&["a", "main"], 10, 2), stack(&["new", "main"], 3, 3)]);
        let more = after.less(&before);
        assert_eq!(more.stacks.len(), 3);
        let (allocated, live) = more.totals();
        assert_eq!((allocated.bytes, live.bytes), (18, 2));
        assert_eq!(more.folded(Which::Live, true), ["main;a 10 14", "main;gone 5 0", "main;new 0 3"]);
        assert_eq!(more.folded(Which::Live, false), ["main;a 14", "main;new 3"]);
    }

    #[test]
    fn what_is_drawn_is_escaped() {
        let named = profile(vec![stack(&["operator<", "main"], 9, 5)]);
        for is_difference in [false, true] {
            let mut out = Vec::new();
            draw(&named.folded(Which::Live, is_difference), "<&\u{1b}", Which::Live, is_difference, &mut out)
                .expect("drawn");
            let text = String::from_utf8(out).expect("UTF-8");
            assert!(text.contains("<svg") && text.contains("operator&lt;") && text.contains("&lt;&amp;?"), "{text}");
        }
        assert!(draw(&[], "", Which::Live, false, Vec::new()).is_err());
    }
}
