//! Layers of the engine import only downwards, and only `arch` holds assembly
//! and names the processor's atomics.
//!
//! Ranks are those of ARCHITECTURE.md. A module may use its own rank's module
//! (itself) and lower ones. Unit tests at the end of a file, from
//! `#[cfg(test)]` on, and files of tests may use what they like.
//!
//! The command's modules are ranked likewise, and in no crate do files import each other in a circle.

mod imports;

use imports::{Imports, is_test, name, sources};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Bottom to top. Of one rank: neither may use the other, but for the two pairs below.
const RANKS: &[(&str, u32)] = &[
    ("arch", 0),
    ("stat", 1),
    ("knob", 1),
    ("meta", 2),
    ("cpu", 3),
    ("cache", 4),
    ("percpu", 4),
    ("counter", 5),
    ("page", 5),
    ("vmap", 6),
    ("slab", 7),
    ("reclaim", 8),
    ("heap", 9),
    ("control", 10),
];
/// A layer may take plain types and tables (no behaviour) of these, which are not below it.
const PLAIN: &[(&str, &str)] = &[("arch", "stat"), ("stat", "knob")];
/// Only these directories may hold what the words below name.
const ASSEMBLY: &[&str] = &["asm!", "naked_asm!", "global_asm!", "core::sync::atomic", "core::arch::"];

fn rank(module: &str) -> Option<u32> {
    RANKS.iter().find(|(name, _)| *name == module).map(|(_, rank)| *rank)
}

/// The code without comments, up to the tests.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let next = lines.clone().map(str::trim_start).find(|next| !next.starts_with("#["));
        let next = next.unwrap_or("").trim_start_matches("pub ");
        if line.trim_start().starts_with("#[cfg(test)]") && next.starts_with("mod tests {") {
            break;
        }
        code.push_str(line.split("//").next().unwrap_or(""));
        code.push('\n');
    }
    code
}

/// Every `crate::X` of the code, those in braces too.
fn imports(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|before: char| before == '$' || before.is_alphanumeric() || before == '_') {
            continue;
        }
        let rest = &code[at + 7..];
        if let Some(list) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut word = String::new();
            for letter in list.chars() {
                match letter {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => found.push(std::mem::take(&mut word)),
                    _ if depth == 0 => word.push(letter),
                    _ => {}
                }
            }
            found.push(word);
        } else {
            found.push(rest.to_owned());
        }
    }
    let name = |path: String| {
        let path = path.trim();
        path.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect::<String>()
    };
    found.into_iter().map(name).filter(|module| rank(module).is_some()).collect()
}

/// What is wrong with one file of layer `layer`.
fn wrongs(layer: &str, text: &str) -> Vec<String> {
    let code = code(text);
    let mut wrongs = Vec::new();
    let own = rank(layer);
    for module in imports(&code) {
        let allowed = module == layer
            || PLAIN.contains(&(layer, module.as_str()))
            || own.is_none_or(|own| rank(&module).is_some_and(|other| other < own));
        if !allowed {
            wrongs.push(format!("{layer} uses {module}, which is not below it"));
        }
    }
    if layer != "arch" {
        for word in ASSEMBLY.iter().filter(|word| code.contains(**word)) {
            wrongs.push(format!("{layer} holds `{word}`, which belongs to arch"));
        }
    }
    wrongs
}

fn files(directory: &Path, into: &mut Vec<PathBuf>) {
    files_of(directory, &["rs"], into);
}

fn files_of(directory: &Path, endings: &[&str], into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            files_of(&path, endings, into);
        } else if path.extension().is_some_and(|of| endings.iter().any(|ending| of == *ending)) {
            into.push(path);
        }
    }
}

fn engine() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src")
}

/// The layer that a file belongs to; `None` for the root and for files of tests.
fn layer_of(file: &Path) -> Option<String> {
    let inside = file.strip_prefix(engine()).unwrap();
    let first = inside.components().next()?.as_os_str().to_str()?.trim_end_matches(".rs").to_owned();
    let tests = inside.components().any(|part| {
        let name = part.as_os_str().to_string_lossy();
        name.starts_with("tests") || name.ends_with("_tests.rs") || name.ends_with("_test.rs")
    });
    (first != "lib" && !tests).then_some(first)
}

#[test]
fn layers_use_only_lower_ones() {
    let mut all = Vec::new();
    files(&engine(), &mut all);
    assert!(all.len() > 10, "{all:?}");
    let mut wrong = Vec::new();
    for file in all {
        let Some(layer) = layer_of(&file) else { continue };
        let text = fs::read_to_string(&file).unwrap();
        wrong.extend(wrongs(&layer, &text).into_iter().map(|line| format!("{}: {line}", file.display())));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_module_has_a_rank() {
    let root = fs::read_to_string(engine().join("lib.rs")).unwrap();
    for line in code(&root).lines() {
        let words: Vec<&str> = line.trim().trim_end_matches(';').split(' ').collect();
        if let [.., "mod", module] = words[..] {
            assert!(rank(module).is_some() || module.contains("test"), "`{module}` has no rank here");
        }
    }
}

/// The command's modules, bottom to top. Of one rank: neither may use the other. (`main` is above all.)
const COMMAND: &[(&str, u32)] = &[
    ("args", 0),
    ("clock", 0),
    ("code", 0),
    ("conf", 0),
    ("term", 1),
    ("proc", 2),
    ("file", 3),
    ("report", 3),
    ("doctor", 4),
    ("observe", 4),
    ("profile", 5),
    ("run", 6),
    ("bench", 7),
    ("unpack", 7),
];

/// What is wrong with the command's imports.
fn command_wrongs(imports: &Imports) -> Vec<String> {
    let rank = |module: &str| COMMAND.iter().find(|(name, _)| *name == module).map(|(_, rank)| *rank);
    let mut wrongs = Vec::new();
    for (from, others) in &imports.edges {
        // (The root is `main`.)
        let Some(layer) = from.first() else { continue };
        let Some(own) = rank(layer) else {
            wrongs.push(format!("`{layer}` has no rank here"));
            continue;
        };
        for to in others.iter().filter(|to| to.first() != Some(layer)) {
            if to.first().and_then(|other| rank(other)).is_none_or(|other| other >= own) {
                wrongs.push(format!("{} uses {}, which is not below {layer}", name(from), name(to)));
            }
        }
    }
    wrongs
}

#[test]
fn modules_of_the_command_use_only_lower_ones() {
    let imports = Imports::of(&sources("cli"), is_test);
    assert!(imports.edges.len() > 60 && imports.edges.values().map(|to| to.len()).sum::<usize>() > 200);
    let wrong = command_wrongs(&imports);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// No circle of files in any crate.
#[test]
fn no_file_imports_itself_by_others() {
    let mut wrong = Vec::new();
    for of in ["engine", "lib", "cli", "models"] {
        let imports = Imports::of(&sources(of), is_test);
        assert!(imports.edges.len() > 3, "{of}");
        for circle in imports.circles() {
            wrong.push(format!("{of}, {} files:\n{}", circle.len(), imports.told(&circle)));
        }
    }
    assert!(wrong.is_empty(), "circles of imports:\n{}", wrong.join("\n"));
}

/// Lines of code of a file, at most: without comments and empty lines.
const LONGEST: usize = 700;

#[test]
fn no_file_is_long() {
    let mut all = Vec::new();
    for place in ["cli/src", "cli/tests", "engine/src", "lib", "models", "mutants/src"] {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(place);
        files_of(&place, &["rs", "c", "cpp", "h"], &mut all);
    }
    assert!(all.len() > 100);
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let long = all.iter().map(|file| (fs::read_to_string(file).unwrap().lines().filter(is_code).count(), file));
    let long: Vec<_> = long.filter(|(lines, _)| *lines > LONGEST).collect();
    assert!(long.is_empty(), "{long:?}");
}

/// What stands in a table and what nobody names: such a knob is never read, such an event never counted. (What is named is not
/// always used.)
fn idle_lines(table: &str, kind: &str, rest: &str) -> Vec<String> {
    // `Name "name" Kind::…` of a knob, `Name = "name", …` of an event.
    let lines = table.lines().filter_map(|line| {
        let (name, after) = line.trim().split_once(' ')?;
        let is_line = if kind == "Id" { after.contains("\" Kind::") } else { after.starts_with("= \"") };
        (is_line && name.starts_with(char::is_uppercase)).then(|| name.to_owned())
    });
    // A whole word. (A knob of several words has a type of its name; the table of events has levels and timings, too.)
    let is_named = |word: &str| {
        let ends = |at: usize| !rest[at..].starts_with(|next: char| next.is_alphanumeric() || next == '_');
        rest.match_indices(word).any(|(at, _)| ends(at + word.len()))
    };
    let of: &[&str] = if kind == "Id" { &["Id"] } else { &["Event", "Level", "Timing"] };
    let is_used = |name: &String| {
        of.iter().any(|of| is_named(&format!("{of}::{name}")))
            || kind == "Id" && rest.contains(&format!("choice::<{name}>"))
            || kind == "Id" && rest.contains(&format!("knob::{name}"))
    };
    lines.filter(|name| !is_used(name)).collect()
}

#[test]
fn every_knob_is_read_and_every_event_counted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut files, mut rest) = (Vec::new(), String::new());
    for place in ["engine/src", "lib/src"] {
        files_of(&root.join(place), &["rs"], &mut files);
    }
    for file in files.iter().filter(|file| !is_test(file)) {
        let text = fs::read_to_string(file).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        // (Of the knobs only what reads them: the table and what is fixed name all.)
        rest += if file.ends_with("knob.rs") { &text[text.find("impl Knobs").unwrap()..] } else { text };
    }
    for (file, kind) in [("knob.rs", "Id"), ("stat/event.rs", "Event")] {
        let table = fs::read_to_string(root.join("engine/src").join(file)).unwrap();
        let idle = idle_lines(&table, kind, &rest);
        assert!(idle.is_empty(), "in the table of {file}, and nothing names them: {idle:?}");
    }
    assert_eq!(
        idle_lines("    Greeting \"greeting\" Kind::Count,\n    Of = \"of\", \"x\";", "Id", "Id::Of"),
        ["Greeting"]
    );
}

/// What the checks of imports are for must fail.
#[test]
fn canary_of_imports() {
    let imports = |texts: &[(&str, &str)]| {
        let module = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Imports::of_texts(
            texts.iter().map(|(name, text)| (module(name), (*text).to_owned())).collect::<BTreeMap<_, _>>(),
        )
    };
    // Upwards, by each form of a path.
    for text in [
        "use crate::bench::suite;",
        "use crate::{\n    args,\n    bench::{self, x},\n};",
        "fn f() { crate::bench::f() }",
    ] {
        assert_eq!(command_wrongs(&imports(&[("run::watch", text), ("bench", ""), ("args", "")])).len(), 1, "{text}");
    }
    assert_eq!(command_wrongs(&imports(&[("stranger", "")])).len(), 1);
    assert_eq!(command_wrongs(&imports(&[("", ""), ("run", "use crate::Thing;")])).len(), 1);
    // Circles: of siblings, of parent and child, by a name of the crate's root.
    for (a, b) in [("use super::b::B;", "use super::a;"), ("use crate::m::b;", "fn f() { super::a::f() }")] {
        let found = imports(&[("m", ""), ("m::a", a), ("m::b", b)]).circles();
        assert!(found.len() == 1 && found[0].len() == 2, "{a} {b}");
    }
    for parent in ["use child::f;", "fn g() { child::f() }", "pub use self::child::{f, g};"] {
        assert_eq!(imports(&[("m", parent), ("m::child", "use super::Thing;")]).circles().len(), 1, "{parent}");
    }
    assert_eq!(imports(&[("", "mod a; use a::A;"), ("a", "use crate::Thing;")]).circles().len(), 1);
    // And nothing else may.
    let fine = [
        ("m", "mod a;\nmod b; use a::A; // super::c"),
        ("m::a", "use super::b::{self, B};\nuse std::fs;"),
        ("m::b", "fn f() { x::a::f() }\n#[cfg(test)]\nmod tests {\n use super::super::a;\n}"),
    ];
    assert!(imports(&fine).circles().is_empty());
}

/// What this file is for must fail.
#[test]
fn canary() {
    assert_eq!(wrongs("page", "use crate::heap::Heap;").len(), 1);
    assert_eq!(wrongs("page", "use crate::{arch::PAGE, slab::{A, heap}, vmap};").len(), 2);
    assert_eq!(wrongs("slab", "fn f() { crate::reclaim::wake() }").len(), 1);
    assert_eq!(wrongs("heap", "use core::sync::atomic::AtomicU32;").len(), 1);
    assert_eq!(wrongs("percpu", "unsafe { asm!(\"nop\") }").len(), 1);
    assert_eq!(wrongs("arch", "use crate::percpu::Sets;").len(), 1);
    // And nothing else may.
    assert!(wrongs("heap", "use crate::arch::PAGE; use crate::slab; // crate::zzz heap").is_empty());
    assert!(wrongs("page", "// crate::heap\n/// [`crate::heap`]\nfn f() {}").is_empty());
    for allow in ["", "#[allow(clippy::x)]\n"] {
        let tests = format!("fn f() {{}}\n#[cfg(test)]\n{allow}mod tests {{\n use crate::heap;\n}}");
        assert!(wrongs("page", &tests).is_empty());
    }
    assert!(wrongs("arch", "use core::sync::atomic::AtomicU32; use crate::stat::Mode;").is_empty());
}
