//! What a built file is made of: symbols and instructions, from binutils.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;

pub fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// One instruction.
pub struct Instruction {
    mnemonic: String,
    operands: String,
    next: u64,
}

/// The whole file by address, and its symbols (`kind` tells `nm` which).
pub fn disassembly(library: &str, kind: &[&str]) -> (BTreeMap<u64, Instruction>, BTreeMap<String, u64>) {
    let text = output("objdump", &["-d", "--no-show-raw-insn", "-Mintel", library]);
    let mut listed: Vec<(u64, String, String)> = Vec::new();
    for line in text.lines() {
        let Some((address, rest)) = line.split_once(":\t") else { continue };
        let Ok(address) = u64::from_str_radix(address.trim(), 16) else { continue };
        let rest = rest.split('#').next().unwrap_or("").trim();
        let mut rest = rest.splitn(2, ' ');
        let mut mnemonic = rest.next().unwrap_or("").to_owned();
        let mut operands = rest.next().unwrap_or("").trim().to_owned();
        if matches!(mnemonic.as_str(), "lock" | "rep" | "repz" | "notrack" | "bnd") {
            let (real, others) = operands.split_once(' ').unwrap_or((&operands, ""));
            (mnemonic, operands) = (format!("{mnemonic} {real}"), others.trim().to_owned());
        }
        listed.push((address, mnemonic, operands));
    }
    let nexts: Vec<u64> = listed.iter().skip(1).map(|entry| entry.0).chain([0]).collect();
    let code = listed
        .into_iter()
        .zip(nexts)
        .map(|((address, mnemonic, operands), next)| (address, Instruction { mnemonic, operands, next }))
        .collect();
    let symbols = output("nm", &[kind, &[library]].concat())
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [address, _, name] = fields[..] else { return None };
            Some((name.split('@').next()?.to_owned(), u64::from_str_radix(address, 16).ok()?))
        })
        .collect();
    (code, symbols)
}

/// Classes of instructions on one path.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub all: usize,
    pub branches: usize,
    pub writes: usize,
    pub locked: usize,
    pub calls: usize,
    /// Cache lines that the instructions lie in: what the processor fetches.
    pub lines: BTreeSet<u64>,
}

/// Does it write memory? The destination comes first.
fn writes(instruction: &Instruction) -> bool {
    let mnemonic = instruction.mnemonic.as_str();
    let reads_only = ["cmp", "test", "lea", "jmp", "call", "nop", "bt", "prefetch"];
    let mnemonic = mnemonic.strip_prefix("lock ").unwrap_or(mnemonic);
    mnemonic == "push"
        || (!reads_only.iter().any(|&other| mnemonic.starts_with(other))
            && instruction.operands.split(',').next().is_some_and(|destination| destination.contains('[')))
}

/// Where a jump goes.
fn target(instruction: &Instruction) -> Option<u64> {
    u64::from_str_radix(instruction.operands.split_whitespace().next()?.trim_start_matches("0x"), 16).ok()
}

/// From the entry to `ret`, every conditional jump not taken: the layout that the fast
/// paths are written for. Jumps that always go are followed.
pub fn walk(code: &BTreeMap<u64, Instruction>, entry: u64, listing: &mut String) -> Counts {
    let (mut counts, mut at) = (Counts::default(), entry);
    while counts.all < 500 {
        let instruction = code.get(&at).unwrap_or_else(|| panic!("no instruction at {at:x}"));
        writeln!(listing, "  {at:6x} {} {}", instruction.mnemonic, instruction.operands).unwrap();
        counts.all += 1;
        counts.lines.extend([at / 64, (instruction.next - 1) / 64]);
        counts.locked += usize::from(
            instruction.mnemonic.starts_with("lock ")
                || (instruction.mnemonic == "xchg" && instruction.operands.contains('[')),
        );
        counts.writes += usize::from(writes(instruction));
        at = instruction.next;
        match instruction.mnemonic.as_str() {
            "ret" | "repz ret" => return counts,
            "call" => counts.calls += 1,
            "jmp" => match target(instruction) {
                Some(to) => at = to,
                None => return counts, // a tail call through a pointer
            },
            jump if jump.starts_with('j') => counts.branches += 1,
            _ => {}
        }
    }
    panic!("no end\n{listing}");
}

/// The stack that functions take at most: all their pushes and frames along the deepest chain of calls. What is called through a
/// pointer is not seen, except the pairs that are named (`caller`, `called`, by a part of their symbols); what panics is left out,
/// and so is each function of which `skip` says so.
pub struct Stacks<'a> {
    names: BTreeMap<u64, &'a str>,
    frames: BTreeMap<u64, Frame>,
    deepest: BTreeMap<u64, (usize, Option<u64>)>,
}

#[derive(Default)]
struct Frame {
    bytes: usize,
    calls: BTreeSet<u64>,
    /// Jumps to other functions, after which this frame is gone.
    tails: BTreeSet<u64>,
}

impl<'a> Stacks<'a> {
    pub fn new(
        code: &BTreeMap<u64, Instruction>,
        symbols: &'a BTreeMap<String, u64>,
        pointers: &[(&str, &str)],
        skip: impl Fn(&str) -> bool,
    ) -> Self {
        let names: BTreeMap<u64, &str> = symbols.iter().map(|(name, &at)| (at, name.as_str())).collect();
        let mut frames: BTreeMap<u64, Frame> = BTreeMap::new();
        for (at, instruction) in code {
            let Some((&function, name)) = names.range(..=at).next_back() else { continue };
            let frame = frames.entry(function).or_default();
            if skip(name) || name.contains("panic") || name.contains("_fail") {
                continue;
            }
            let (mnemonic, operands) = (instruction.mnemonic.as_str(), instruction.operands.as_str());
            let to = target(instruction).filter(|to| names.contains_key(to));
            match (mnemonic, to) {
                ("push", _) => frame.bytes += 8,
                ("sub", _) => {
                    let bytes = operands.strip_prefix("rsp,0x").and_then(|hex| usize::from_str_radix(hex, 16).ok());
                    frame.bytes += bytes.unwrap_or(0);
                }
                ("call", Some(to)) => drop(frame.calls.insert(to)),
                (jump, Some(to)) if jump.starts_with('j') && to != function => drop(frame.tails.insert(to)),
                _ => {}
            }
        }
        let of = |part: &str| -> Vec<u64> {
            let found: Vec<u64> = names.iter().filter(|(_, name)| name.contains(part)).map(|(&at, _)| at).collect();
            assert!(!found.is_empty(), "{part} is no function");
            found
        };
        for (caller, called) in pointers {
            of(caller).into_iter().for_each(|at| frames.entry(at).or_default().calls.extend(of(called)));
        }
        Self { names, frames, deepest: BTreeMap::new() }
    }

    /// Bytes from the entry of the function at `entry` on; a call of itself counts once.
    pub fn deepest(&mut self, entry: u64) -> usize {
        if let Some((bytes, _)) = self.deepest.get(&entry) {
            return *bytes;
        }
        self.deepest.insert(entry, (0, None));
        let frame = self.frames.remove(&entry).unwrap_or_default();
        let mut worst = (frame.bytes, None);
        for &called in &frame.calls {
            worst = worst.max((frame.bytes + 8 + self.deepest(called), Some(called)));
        }
        for &next in &frame.tails {
            worst = worst.max((self.deepest(next), Some(next)));
        }
        self.frames.insert(entry, frame);
        self.deepest.insert(entry, worst);
        worst.0
    }

    /// The chain of the deepest, a function on each line with the bytes from there on.
    pub fn chain(&self, entry: u64) -> String {
        let steps = std::iter::successors(Some(entry), |at| self.deepest.get(at)?.1);
        steps.fold(String::new(), |mut text, at| {
            writeln!(text, "  {:5} {}", self.deepest[&at].0, self.names[&at]).unwrap();
            text
        })
    }
}
