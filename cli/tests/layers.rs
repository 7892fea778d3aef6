//! Layers of the engine import only downwards, and only `arch` holds assembly
//! and names the processor's atomics.
//!
//! Ranks are those of ARCHITECTURE.md. A module may use its own rank's module
//! (itself) and lower ones. Unit tests at the end of a file, from
//! `#[cfg(test)]` on, and files of tests may use what they like.

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
    let mut lines = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("#[cfg(test)]") && !line.contains("mod tests;") {
            let rest: Vec<&str> = text[text.find(line).unwrap_or(0)..].lines().skip(1).take(1).collect();
            if rest.first().is_some_and(|next| next.trim_start().starts_with("mod tests {")) {
                break;
            }
        }
        lines.push_str(line.split("//").next().unwrap_or(""));
        lines.push('\n');
    }
    lines
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
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
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
    assert!(wrongs("page", "fn f() {}\n#[cfg(test)]\nmod tests {\n use crate::heap;\n}").is_empty());
    assert!(wrongs("arch", "use core::sync::atomic::AtomicU32; use crate::stat::Mode;").is_empty());
}
