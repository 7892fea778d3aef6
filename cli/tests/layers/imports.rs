//! # Who imports whom
//!
//! A node is a file. An edge goes from it to each file of its crate that it names: by `use`, by a path that begins with
//! `crate`, `super` or `self`, or by a path into a module below it. `mod x;` is no edge, nor is what only tests name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// `["observe", "top"]`; the root is empty.
pub type Module = Vec<String>;

/// The files of a crate, and what each names.
pub struct Imports {
    pub edges: BTreeMap<Module, BTreeSet<Module>>,
}

impl Imports {
    /// Of the sources below `src`; what `skip` says is left out.
    pub fn of(src: &Path, skip: impl Fn(&Path) -> bool) -> Self {
        let mut files = Vec::new();
        super::files(src, &mut files);
        let texts = files.iter().filter(|file| !skip(file)).map(|file| {
            let text = fs::read_to_string(file).unwrap();
            (module(file.strip_prefix(src).unwrap()), text)
        });
        Self::of_texts(texts.collect())
    }

    /// Of texts by module.
    pub fn of_texts(texts: BTreeMap<Module, String>) -> Self {
        let modules: BTreeSet<Module> = texts.keys().cloned().collect();
        let edges = |(here, text): (&Module, &String)| {
            let named = paths(&super::code(text), here, &modules);
            let found = named.iter().filter_map(|path| resolve(path, here, &modules));
            (here.clone(), found.filter(|other| other != here).collect())
        };
        Self { edges: texts.iter().map(edges).collect() }
    }

    /// The circles: sets of files each of which reaches each other one.
    pub fn circles(&self) -> Vec<BTreeSet<Module>> {
        let reaches: BTreeMap<&Module, BTreeSet<&Module>> =
            self.edges.keys().map(|from| (from, self.reached(from))).collect();
        let mut circles: Vec<BTreeSet<Module>> = Vec::new();
        for (from, reached) in &reaches {
            let same = |other: &&&Module| reaches[**other].contains(from);
            let circle: BTreeSet<Module> = reached.iter().filter(same).map(|module| (*module).clone()).collect();
            if circle.len() > 1 && !circles.contains(&circle) {
                circles.push(circle);
            }
        }
        circles
    }

    fn reached<'a>(&'a self, from: &'a Module) -> BTreeSet<&'a Module> {
        let mut found = BTreeSet::new();
        let mut todo = vec![from];
        while let Some(next) = todo.pop() {
            for other in self.edges.get(next).into_iter().flatten() {
                if found.insert(other) {
                    todo.push(other);
                }
            }
        }
        found
    }

    /// The edges within a circle, a line each.
    pub fn told(&self, circle: &BTreeSet<Module>) -> String {
        let within =
            |from: &Module| self.edges[from].iter().filter(|to| circle.contains(*to)).cloned().collect::<Vec<_>>();
        let line = |from: &Module| {
            format!("  {} → {}", name(from), within(from).iter().map(name).collect::<Vec<_>>().join(", "))
        };
        circle.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// `observe::top`; `crate` is the root.
pub fn name(module: &Module) -> String {
    if module.is_empty() { "crate".into() } else { module.join("::") }
}

/// The module of a file, by its path below the sources.
fn module(file: &Path) -> Module {
    let mut parts: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod")
        || parts.len() == 1 && ["lib", "main"].contains(&parts[0].as_str())
    {
        parts.pop();
    }
    parts
}

/// The deepest file that a path leads to; `None`: out of the crate.
fn resolve(path: &[String], here: &Module, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut at: Module = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => here.clone(),
        child if modules.contains(&below(here, child)) => below(here, child),
        _ => return None,
    };
    let mut rest = &path[usize::from(path[0] != "super")..];
    while let Some(("super", behind)) = rest.split_first().map(|(first, behind)| (first.as_str(), behind)) {
        at.pop()?;
        rest = behind;
    }
    for part in rest {
        if !modules.contains(&below(&at, part)) {
            break;
        }
        at.push(part.clone());
    }
    Some(at)
}

fn below(module: &Module, child: &str) -> Module {
    module.iter().cloned().chain([child.to_owned()]).collect()
}

/// Every path that might lead into the crate.
fn paths(code: &str, here: &Module, modules: &BTreeSet<Module>) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = String::new();
    let mut statement: Option<String> = None;
    for line in code.lines() {
        let words = line.trim_start();
        let behind = words.strip_prefix("pub ").or_else(|| words.strip_prefix("pub(crate) ")).unwrap_or(words);
        if statement.is_none() && behind.starts_with("use ") {
            statement = Some(String::new());
        }
        match &mut statement {
            Some(text) => {
                text.push_str(behind.strip_prefix("use ").unwrap_or(behind));
                if text.contains(';') {
                    let text = statement.take().unwrap_or_default();
                    tree(text.split(';').next().unwrap_or(""), &[], &mut found);
                }
            }
            None => {
                rest.push_str(line);
                rest.push('\n');
            }
        }
    }
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    for (at, _) in rest.match_indices("::") {
        let begin = rest[..at].rfind(|letter: char| !is_word(letter)).map_or(0, |found| found + 1);
        let before = rest[..begin].chars().next_back();
        let first = &rest[begin..at];
        let leads = ["crate", "self", "super"].contains(&first) || modules.contains(&below(here, first));
        if first.is_empty() || !leads || before.is_some_and(|letter| ":.$'".contains(letter)) {
            continue;
        }
        let end = rest[begin..]
            .find(|letter: char| !is_word(letter) && letter != ':')
            .map_or(rest.len(), |found| begin + found);
        found.push(rest[begin..end].split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect());
    }
    found
}

/// The paths of a `use`: `a::{self, b::{c, d}}`.
fn tree(text: &str, before: &[String], found: &mut Vec<Vec<String>>) {
    let text = text.trim();
    let (head, braces) = text.split_once('{').map_or((text, None), |(head, rest)| (head, Some(rest)));
    let parts = head.split("::").map(|part| part.trim().split(' ').next().unwrap_or("").to_owned());
    let path: Vec<String> = before.iter().cloned().chain(parts.filter(|part| !part.is_empty())).collect();
    let Some(inner) = braces.and_then(|rest| rest.rsplit_once('}')).map(|(inner, _)| inner) else {
        // (`a::{self}` is `a`.)
        let is_self = path.len() > 1 && path.last().is_some_and(|last| last == "self");
        return found.push(if is_self { path[..path.len() - 1].to_vec() } else { path });
    };
    let (mut depth, mut from) = (0, 0);
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[from..at].trim().is_empty() {
                    tree(&inner[from..at], &path, found);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// The sources of a crate of this workspace.
pub fn sources(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of).join("src")
}

/// Whether a file holds tests only.
pub fn is_test(file: &Path) -> bool {
    let is = |part: &str| part.starts_with("tests") || part.ends_with("_tests") || part.ends_with("_test");
    file.with_extension("").iter().any(|part| is(&part.to_string_lossy()))
}
