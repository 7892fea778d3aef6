//! # The checkout's copy, and its one build
//!
//! The compiler says which mutants are none: those whose code it rejects are left out, and it is asked again.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use serde_json::Value;

use crate::find::{self, Constants, Finder, Found, Mutant};
use crate::weave::{Woven, weave};

/// The crate whose tests are to notice.
const PACKAGE: &str = "allotment-engine";
/// Its sources.
const SOURCES: &str = "engine/src";
/// What the engine's copy gets as `crate::mutants`.
const SWITCH: &str = include_str!("switch.rs");

/// A file of the engine with what can be changed in it.
struct File {
    path: String,
    text: String,
    found: Found,
    /// The number of its first mutant.
    first: u32,
}

/// The engine's sources, and the mutants in those that are wanted.
pub struct Sources {
    root: PathBuf,
    files: Vec<File>,
}

impl Sources {
    /// Reads the engine in `root` and finds what can be changed in files under `wanted`, in that order.
    pub fn read(root: &Path, wanted: &[String]) -> io::Result<Self> {
        let mut parsed = Vec::new();
        modules(root, &format!("{SOURCES}/lib.rs"), true, &mut parsed)?;
        let mut constants = Constants::default();
        for module in &parsed {
            constants.add(&module.file, !wanted.iter().any(|place| module.is_under(place)));
        }
        constants.close();
        parsed.retain(|module| module.is_ours);
        let (mut files, mut first) = (Vec::new(), 1);
        for place in wanted {
            for Module { path, text, file, .. } in parsed.extract_if(.., |module| module.is_under(place)) {
                let found = Finder::find(&path, &text, &file, &constants);
                let count = found.mutants.len() as u32;
                files.push(File { path, text, found, first });
                first += count;
            }
        }
        Ok(Self { root: root.to_owned(), files })
    }

    /// All mutants with their numbers.
    pub fn mutants(&self) -> impl Iterator<Item = (u32, &Mutant)> {
        self.files.iter().flat_map(|file| (file.first..).zip(&file.found.mutants))
    }

    /// Changes that a constant or what one needs would have.
    pub fn constant(&self) -> usize {
        self.files.iter().map(|file| file.found.constant).sum()
    }

    /// Copies the checkout into `scratch`, builds it with all mutants that the compiler takes, and gives the tests'
    /// program and the numbers of the others.
    pub fn build(&self, scratch: &Path) -> Result<(PathBuf, HashSet<u32>), String> {
        let copy = scratch.join("checkout");
        copy_checkout(&self.root, &copy).map_err(|error| format!("{}: {error}", copy.display()))?;
        let mut rejected = HashSet::new();
        loop {
            let woven = self.weave(&copy, &rejected).map_err(|error| format!("{}: {error}", copy.display()))?;
            let (program, errors) = compile(&copy, scratch)?;
            if let Some(program) = program {
                return Ok((program, rejected));
            }
            let before = rejected.len();
            for error in &errors {
                rejected.extend(culprits(error, &woven));
            }
            if rejected.len() == before {
                let texts: Vec<_> = errors.iter().filter_map(|error| error["rendered"].as_str()).collect();
                return Err(format!("the copy does not build, and no mutant is at fault:\n{}", texts.concat()));
            }
        }
    }

    /// Writes the files with all mutants but those.
    fn weave(&self, copy: &Path, without: &HashSet<u32>) -> io::Result<HashMap<String, Woven>> {
        let mut woven = HashMap::new();
        for file in &self.files {
            let number = |at: usize| {
                let number = file.first + at as u32;
                if without.contains(&number) { 0 } else { number }
            };
            let with = weave(&file.text, &file.found, number);
            write(&copy.join(&file.path), &with.text)?;
            woven.insert(file.path.clone(), with);
        }
        // On one line, so that it adds none before others.
        let lib = copy.join(SOURCES).join("lib.rs");
        let text = fs::read_to_string(&lib)?;
        if !text.ends_with("pub mod mutants;\n") {
            write(&lib, format!("{text}pub mod mutants;\n"))?;
        }
        write(&copy.join(SOURCES).join("mutants.rs"), SWITCH)?;
        Ok(woven)
    }
}

/// A file of the crate.
struct Module {
    path: String,
    text: String,
    file: syn::File,
    /// It is not for tests alone.
    is_ours: bool,
}

impl Module {
    fn is_under(&self, place: &str) -> bool {
        Path::new(&self.path).starts_with(place.trim_end_matches('/'))
    }
}

/// The file at `path`, and those of its modules.
fn modules(root: &Path, path: &str, is_ours: bool, into: &mut Vec<Module>) -> io::Result<()> {
    let text = fs::read_to_string(root.join(path))?;
    let file = syn::parse_file(&text).map_err(|error| io::Error::other(format!("{path}: {error}")))?;
    let here = Path::new(path).parent().unwrap_or(Path::new(""));
    let stem = Path::new(path).file_stem().unwrap_or_default();
    let below = if ["mod", "lib"].iter().any(|name| stem == *name) { here.to_owned() } else { here.join(stem) };
    let mut next = Vec::new();
    for item in &file.items {
        let syn::Item::Mod(module) = item else { continue };
        if module.content.is_some() {
            continue;
        }
        let name = module.ident.to_string();
        let given = module.attrs.iter().find_map(|attribute| match &attribute.meta {
            syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(here.join(path.value())),
                _ => None,
            },
            _ => None,
        });
        let places = [below.join(format!("{name}.rs")), below.join(&name).join("mod.rs")];
        let place = given.or_else(|| places.into_iter().find(|place| root.join(place).exists()));
        if let Some(place) = place {
            next.push((place.to_string_lossy().into_owned(), is_ours && find::is_ours(&module.attrs)));
        }
    }
    into.push(Module { path: path.to_owned(), text, file, is_ours });
    next.into_iter().try_for_each(|(path, is_ours)| modules(root, &path, is_ours, into))
}

/// Every file that git knows; what is as it was keeps its time, and is not built again.
fn copy_checkout(root: &Path, copy: &Path) -> io::Result<()> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()?;
    for name in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
        let Ok(bytes) = fs::read(root.join(name)) else { continue };
        write(&copy.join(name), &bytes)?;
    }
    Ok(())
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    if fs::read(path).is_ok_and(|now| now == bytes.as_ref()) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    fs::write(path, bytes)
}

/// The tests' program, or what the compiler says.
fn compile(copy: &Path, scratch: &Path) -> Result<(Option<PathBuf>, Vec<Value>), String> {
    let output = Command::new("cargo")
        .args(["test", "--quiet", "--no-run", "--lib", "--message-format=json", "-p", PACKAGE, "--target-dir"])
        .arg(scratch.join("target"))
        .current_dir(copy)
        // Lints are for people; the switch is none of the engine's modules.
        .env("RUSTFLAGS", "--cap-lints=allow")
        .env_remove("CARGO_TARGET_DIR")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let lines = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let program = lines.iter().find_map(|line| {
        let is_it = line["target"]["name"] == PACKAGE.replace('-', "_") && line["profile"]["test"] == true;
        line["executable"].as_str().filter(|_| is_it && output.status.success()).map(PathBuf::from)
    });
    let messages = lines.into_iter().map(|mut line| line["message"].take());
    let errors: Vec<_> = messages.filter(|message| message["level"] == "error").collect();
    if program.is_none() && errors.is_empty() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok((program, errors))
}

/// The mutants that an error is about: those in whose code it points, else all of the innermost place around.
fn culprits(error: &Value, woven: &HashMap<String, Woven>) -> Vec<u32> {
    let spans = error["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
    // (What a macro made of it, and what the macro was given.)
    let expanded = spans.iter().map(|span| &span["expansion"]["span"]);
    let spans = spans.iter().chain(expanded);
    let places: Vec<_> = spans
        .filter_map(|span| {
            let range = span["byte_start"].as_u64()? as usize..span["byte_end"].as_u64()? as usize;
            Some((woven.get(span["file_name"].as_str()?)?, range, span["is_primary"] == true))
        })
        .collect();
    let is_in = |inner: &Range<usize>, outer: &Range<usize>| outer.start <= inner.start && inner.end <= outer.end;
    let codes: Vec<u32> = places
        .iter()
        .flat_map(|(woven, range, _)| {
            woven.codes.iter().filter(|(code, _)| is_in(range, code)).map(|(_, number)| *number)
        })
        .collect();
    if !codes.is_empty() {
        return codes;
    }
    let around = |(woven, range, _): &(&Woven, Range<usize>, bool)| {
        let sites = woven.sites.iter().filter(|(site, _)| is_in(range, site) || is_in(site, range));
        sites.min_by_key(|(site, _)| site.len()).map(|(_, numbers)| numbers.clone())
    };
    let mut first: Vec<_> = places.iter().collect();
    first.sort_by_key(|(_, _, is_primary)| !is_primary);
    first.into_iter().find_map(around).unwrap_or_default()
}
