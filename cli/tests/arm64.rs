//! The fast paths of the library for arm64, compared with `golden/arm64.txt` (`ALLOTMENT_TEST_BLESS=1` writes it anew).
//!
//! `ALLOTMENT_TEST_ARM64_SO` is that library (lab/README.md says how it is built), `aarch64-linux-gnu-objdump` reads it.
//! Without either there is nothing to compare.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Entry points with a fast path.
const ENTRIES: [&str; 4] = ["malloc", "free", "_Znwm", "_ZdlPvm"];

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Instructions by address: the mnemonic and its operands.
type Code = BTreeMap<u64, (String, String)>;

fn code(text: &str) -> Code {
    let line = |line: &str| {
        let (address, rest) = line.split_once(":\t")?;
        let address = u64::from_str_radix(address.trim(), 16).ok()?;
        let rest = rest.split("//").next()?.trim();
        let (mnemonic, operands) = rest.split_once('\t').unwrap_or((rest, ""));
        Some((address, (mnemonic.to_owned(), operands.to_owned())))
    };
    text.lines().filter_map(line).collect()
}

/// From the entry to `ret`, every conditional branch not taken: instructions, branches, writes, exclusive or ordering ones, calls.
fn walk(code: &Code, entry: u64, listing: &mut String) -> [usize; 5] {
    let (mut at, mut counts) = (entry, [0; 5]);
    for _ in 0..500 {
        let (mnemonic, operands) = &code[&at];
        writeln!(listing, "  {at:x} {mnemonic} {operands}").unwrap();
        counts[0] += 1;
        let starts = |some: &[&str]| some.iter().any(|name| mnemonic.starts_with(name));
        counts[1] += usize::from(starts(&["b.", "cbz", "cbnz", "tbz", "tbnz"]));
        counts[2] += usize::from(starts(&["st"]));
        counts[3] +=
            usize::from(starts(&["ldx", "ldax", "stx", "stlx", "cas", "swp", "ldadd", "ldset", "ldclr", "dmb", "dsb"]));
        counts[4] += usize::from(starts(&["bl"]));
        at = match mnemonic.as_str() {
            "ret" => return counts,
            "b" => u64::from_str_radix(operands.split_whitespace().next().unwrap(), 16).unwrap(),
            "br" | "udf" | "brk" => panic!("the fast path ends in {mnemonic}\n{listing}"),
            _ => at + 4,
        };
    }
    panic!("the fast path does not end\n{listing}")
}

#[test]
fn fast_paths_of_arm64_are_the_committed_ones() {
    let Some(library) = std::env::var_os("ALLOTMENT_TEST_ARM64_SO") else {
        eprintln!("skipped: no ALLOTMENT_TEST_ARM64_SO");
        return;
    };
    let library = library.to_str().unwrap();
    let disassembly = output("aarch64-linux-gnu-objdump", &["-d", "--no-show-raw-insn", library]).expect("objdump");
    let symbols = output("aarch64-linux-gnu-nm", &["-D", library]).expect("nm");
    let code = code(&disassembly);
    let mut table = String::from(
        "# entry instructions branches writes exclusive calls: fast path of the release library for arm64\n",
    );
    let mut listing = String::new();
    for name in ENTRIES {
        let line = symbols.lines().find(|line| line.split_whitespace().nth(2) == Some(name)).expect(name);
        let entry = u64::from_str_radix(line.split_whitespace().next().unwrap(), 16).unwrap();
        writeln!(listing, "{name}:").unwrap();
        let [all, branches, writes, exclusive, calls] = walk(&code, entry, &mut listing);
        assert_eq!((exclusive, calls), (0, 0), "an exclusive access, a barrier or a call on a fast path\n{listing}");
        writeln!(table, "{name:<10} {all:>3} {branches:>3} {writes:>3} {exclusive:>3} {calls:>3}").unwrap();
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/arm64.txt");
    if std::env::var_os("ALLOTMENT_TEST_BLESS").is_some() {
        std::fs::write(&golden, &table).unwrap();
    }
    let committed = std::fs::read_to_string(&golden).unwrap_or_default();
    assert_eq!(committed, table, "the fast paths have changed\n{listing}");
}
