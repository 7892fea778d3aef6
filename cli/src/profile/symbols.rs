//! # Names of addresses
//!
//! From the symbol tables and debug information of the files that were mapped (those of separate debug
//! packages, too, found by build id): functions, those inlined into them, and lines; C++ and Rust names as
//! they are written. What has no name is a file and an offset.
//!
//! The files are another process's: only regular ones are read, each into memory as far as [`MOST`] and [`MOST_TOGETHER`]
//! go, and no file is opened because one of them says so. (Debug information that was split off into `.dwo` files is not looked for.)

use super::read::{Module, Profile};
use crate::file::Found;
use crate::proc::{self, Maps};
use crate::term::printable;
use addr2line::gimli::{self, EndianSlice, RunTimeEndian};
use object::{Object as _, ObjectSection as _, ObjectSegment as _, SymbolMap, SymbolMapName};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

/// Bytes of the longest file that is read.
const MOST: u64 = 2 << 30;
/// Bytes of all of them.
const MOST_TOGETHER: u64 = 4 << 30;

/// One function at an address; an address has several where they were inlined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Function {
    /// As it is written in the source.
    pub name: String,
    /// As the linker knows it.
    pub system_name: String,
    /// The source file, or nothing.
    pub file: String,
    /// The line, or 0.
    pub line: u32,
}

impl Function {
    /// Whether it hands out memory for others to use: C's and C++'s functions, their allocators, and Rust's with ours in
    /// a program that has Allotment built in.
    pub fn is_allocators(&self) -> bool {
        const WHOLE: &[&str] = &[
            "malloc",
            "calloc",
            "realloc",
            "reallocarray",
            "memalign",
            "aligned_alloc",
            "posix_memalign",
            "valloc",
            "pvalloc",
        ];
        // A beginning, and what must come behind it.
        const PARTS: &[(&str, &str)] = &[
            ("operator new(", ""),
            ("operator new[](", ""),
            ("std::__new_allocator<", "::allocate("),
            ("__gnu_cxx::new_allocator<", "::allocate("),
            ("std::allocator<", "::allocate("),
            ("std::allocator_traits<", "::allocate("),
            ("std::_Vector_base<", "::_M_allocate("),
            ("allotment::", ""),
            ("allotment_engine::", ""),
            ("alloc::alloc::", ""),
            ("alloc::raw_vec::", ""),
            ("__rustc", ""),
            ("__rust_alloc", ""),
            ("__rust_realloc", ""),
        ];
        let name = self.name.trim_start_matches('<');
        let is_one = |&(begin, part): &(&str, &str)| name.starts_with(begin) && name.contains(part);
        WHOLE.contains(&name) || PARTS.iter().any(is_one)
    }
}

type Reader = EndianSlice<'static, RunTimeEndian>;

/// A file, read.
#[derive(Default)]
struct Source {
    lines: Option<addr2line::Context<Reader>>,
    symbols: Option<SymbolMap<SymbolMapName<'static>>>,
    build_id: String,
    /// The lowest address that the file itself counts from.
    lowest: u64,
}

impl Source {
    /// What can be known of a file; `room` is what may still be read.
    fn of(found: &Found, room: &mut u64) -> Option<Self> {
        let object = parsed(found, room)?;
        let hexadecimal = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let build_id = object.build_id().ok().flatten().map(hexadecimal).unwrap_or_default();
        // What was stripped is in a package of its own, below a directory of the system's.
        let separate = build_id.split_at_checked(2).filter(|_| object.section_by_name(".debug_info").is_none());
        let separate = separate.and_then(|(first, rest)| {
            let path = format!("/usr/lib/debug/.build-id/{first}/{rest}.debug");
            parsed(&Found::at(Path::new(&path), true).ok()?, room)
        });
        let symbols = separate.as_ref().unwrap_or(&object).symbol_map();
        let symbols = if symbols.symbols().is_empty() { object.symbol_map() } else { symbols };
        Some(Self {
            lines: lines(separate.as_ref().unwrap_or(&object)),
            symbols: Some(symbols),
            lowest: object.segments().map(|segment| segment.address() & !4095).min().unwrap_or(0),
            build_id,
        })
    }
}

/// A file's content for as long as the command runs: names lead into it.
fn parsed(found: &Found, room: &mut u64) -> Option<object::File<'static>> {
    let bytes = found.read(MOST.min(*room)).ok()?;
    *room -= bytes.len() as u64;
    object::File::parse(&*bytes.leak()).ok()
}

/// Debug information.
fn lines(object: &object::File<'static>) -> Option<addr2line::Context<Reader>> {
    let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let section = |id: gimli::SectionId| {
        let content = object.section_by_name(id.name()).and_then(|section| section.uncompressed_data().ok());
        let content: &'static [u8] = match content {
            Some(Cow::Borrowed(bytes)) => bytes,
            Some(Cow::Owned(bytes)) => bytes.leak(),
            None => &[],
        };
        Ok::<_, gimli::Error>(EndianSlice::new(content, endian))
    };
    addr2line::Context::from_dwarf(gimli::Dwarf::load(section).ok()?).ok()
}

/// The names of a process's addresses.
pub struct Symbols {
    modules: Vec<(Module, Source)>,
    known: HashMap<u64, Vec<Function>>,
}

/// A module, for the table of mappings.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Where it was.
    pub start: u64,
    /// Behind it.
    pub end: u64,
    /// Its path as the process knows it.
    pub path: String,
    /// Its build id in hexadecimal digits, or nothing.
    pub build_id: String,
}

impl Symbols {
    /// Of a profile's modules. `live` is the process while it runs: files are looked for as it sees them.
    pub fn new(profile: &Profile, live: Option<u32>, program: Option<&Path>) -> Self {
        let mut modules = profile.modules.clone();
        if let Some(pid) = live {
            add_maps(&mut modules, Maps::of(pid).unwrap_or_default().text());
        }
        // Readers of pprof's format take the first mapping for the program's. (Nothing is ever mapped in the program's place, so
        // its own place in the order does not matter.)
        let own = live.and_then(|pid| proc::program(pid).ok());
        let own = own.as_deref().or(program).map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
        let is_own = |module: &Module| {
            let path = Path::new(&module.path);
            module.path.is_empty()
                || own.as_deref().is_some_and(|own| own == path || path.canonicalize().is_ok_and(|path| path == own))
        };
        // (Of a script's interpreter, or of a file, only the names are known.)
        let main =
            modules.iter().position(is_own).or_else(|| modules.iter().position(|module| !is_library(&module.path)));
        if let Some(main) = main {
            modules[..=main].rotate_right(1);
        }
        let mut room = MOST_TOGETHER;
        let open = |module: Module| {
            let mut module = module;
            let mut candidates = Vec::new();
            if module.path.is_empty() {
                if let Some(pid) = live {
                    candidates.push(Found::at(&proc::program_link(pid), true));
                    module.path = proc::program(pid).unwrap_or_default().to_string_lossy().into_owned();
                }
                if let Some(program) = program {
                    candidates.push(Found::at(program, true));
                    if module.path.is_empty() {
                        module.path = program.to_string_lossy().into_owned();
                    }
                }
            } else {
                if let Some(pid) = live {
                    candidates.push(Found::below(&proc::root(pid), Path::new(&module.path)));
                }
                candidates.push(Found::at(Path::new(&module.path), true));
            }
            let found = candidates.into_iter().flatten().find(|found| found.info.is_file());
            let source = found.and_then(|found| Source::of(&found, &mut room)).unwrap_or_default();
            (module, source)
        };
        Self { modules: modules.into_iter().map(open).collect(), known: HashMap::new() }
    }

    /// The functions at an address, innermost first; at least one.
    pub fn at(&mut self, address: u64) -> &[Function] {
        // A call may be the last instruction of its function: the byte before the return address is in it.
        let probe = address.saturating_sub(1);
        let modules = &self.modules;
        self.known.entry(address).or_insert_with(|| {
            // The last noted one is the latest, where a file came into another's place.
            match modules.iter().rev().find(|(module, _)| (module.start..module.end).contains(&probe)) {
                Some((module, source)) => named(module, source, probe),
                None => vec![Function { name: format!("{address:#x}"), ..Function::default() }],
            }
        })
    }

    /// The module of an address.
    pub fn mapping_of(&self, address: u64) -> Option<usize> {
        self.modules.iter().rposition(|(module, _)| (module.start..module.end).contains(&address.saturating_sub(1)))
    }

    /// All modules.
    pub fn mappings(&self) -> Vec<Mapping> {
        let mapping = |(module, source): &(Module, Source)| Mapping {
            start: module.start,
            end: module.end,
            path: printable(&module.path),
            build_id: source.build_id.clone(),
        };
        self.modules.iter().map(mapping).collect()
    }
}

/// Whether a file is a shared library by its name: `libc.so.6`.
fn is_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".so") || name.contains(".so.") || name.starts_with('[')
}

/// What is left of a stack without the allocator's own frames (of a program that has Allotment built in).
pub fn callers<'a>(frames: &'a [u64], symbols: &mut Symbols) -> &'a [u64] {
    let skipped = frames.iter().take_while(|&&frame| symbols.at(frame).iter().all(Function::is_allocators)).count();
    // One that is nothing else is shown as it is.
    if skipped < frames.len() { &frames[skipped..] } else { frames }
}

/// What is mapped executable and not among the modules (code without unwind tables, or of an older C library).
fn add_maps(modules: &mut Vec<Module>, maps: &str) {
    let mut lowest: HashMap<&str, u64> = HashMap::new();
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (fields.next(), fields.next()) else { continue };
        let Some(path) = fields.nth(3).filter(|path| path.starts_with('/')) else { continue };
        let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
        let Some((Some(start), Some(end))) = range.split_once('-').map(|(a, b)| (hexadecimal(a), hexadecimal(b)))
        else {
            continue;
        };
        let first = *lowest.entry(path).or_insert(start);
        if rights.contains('x') && !modules.iter().any(|module| module.start < end && start < module.end) {
            modules.insert(0, Module { start: first, end, path: path.to_owned() });
        }
    }
}

fn named(module: &Module, source: &Source, probe: u64) -> Vec<Function> {
    let own = probe.wrapping_sub(module.start.wrapping_sub(source.lowest));
    let mut functions = Vec::new();
    if let Some(lines) = &source.lines
        && let Ok(mut frames) = lines.find_frames(own).skip_all_loads()
    {
        while let Ok(Some(frame)) = frames.next() {
            let raw = frame.function.as_ref().and_then(|name| Some(name.raw_name().ok()?.into_owned()));
            let name = frame.function.as_ref().and_then(|name| Some(name.demangle().ok()?.into_owned()));
            let location = frame.location.as_ref();
            functions.push(Function {
                name: printable(&name.unwrap_or_default()),
                system_name: printable(&raw.unwrap_or_default()),
                file: printable(location.and_then(|location| location.file).unwrap_or_default()),
                line: location.and_then(|location| location.line).unwrap_or(0),
            });
        }
    }
    if functions.is_empty() {
        functions.push(Function::default());
    }
    // The outermost of them is the one that has a symbol.
    if let Some(last) = functions.last_mut().filter(|last| last.name.is_empty())
        && let Some(symbol) =
            source.symbols.as_ref().and_then(|symbols| symbols.containing(own).or_else(|| symbols.before(own)))
    {
        let raw = symbol.name();
        last.name = printable(&addr2line::demangle_auto(Cow::Borrowed(raw), None));
        last.system_name = printable(raw);
    }
    let file = printable(module.path.rsplit('/').next().unwrap_or_default());
    for function in functions.iter_mut().filter(|function| function.name.is_empty()) {
        function.name = format!("{}+{own:#x}", if file.is_empty() { "program" } else { &file });
    }
    // What was inlined into a caller and belongs to the allocator is left out; one that is nothing else stays.
    let own = functions.iter().take_while(|function| function.is_allocators()).count();
    if own < functions.len() {
        functions.drain(..own);
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_first_mapping() {
        let module = |start: u64, path: &str| Module { start, end: start + 0x1000, path: path.into() };
        let first = |paths: &[&str], program: Option<&str>| {
            let modules = paths.iter().zip(1..).map(|(path, at)| module(at << 16, path)).collect();
            let profile = Profile { modules, ..Profile::default() };
            let symbols = Symbols::new(&profile, None, program.map(Path::new));
            let mappings = symbols.mappings();
            assert_eq!(mappings.len(), paths.len());
            // What is at an address is as it was.
            for (path, at) in paths.iter().zip(1_u64..) {
                let found = symbols.mapping_of((at << 16) + 9).expect("mapped");
                assert!(path.is_empty() || mappings[found].path == *path);
            }
            mappings[0].path.clone()
        };
        assert_eq!(first(&["/lib/a.so.6", "", "/lib/b.so"], Some("/bin/none")), "/bin/none");
        assert_eq!(first(&["/lib/a.so.6", "/x/plug-in", "/bin/none"], Some("/bin/none")), "/bin/none");
        assert_eq!(first(&["/lib/a.so.6", "[vdso]", "/lib/b.so", "/bin/none"], None), "/bin/none");
        assert_eq!(first(&["/lib/a.so.6"], None), "/lib/a.so.6");
    }

    #[test]
    fn this_test_is_named() {
        let maps = Maps::of(std::process::id()).expect("maps");
        let mut profile = Profile::default();
        add_maps(&mut profile.modules, maps.text());
        let here = this_test_is_named as fn() as usize as u64;
        let mut symbols = Symbols::new(&profile, Some(std::process::id()), None);
        let functions = symbols.at(here + 8).to_vec();
        assert!(functions.iter().any(|function| function.name.contains("this_test_is_named")), "{functions:?}");
        let mapping = symbols.mapping_of(here).expect("mapped");
        assert!(symbols.mappings()[mapping].path.contains("allotment"));
        assert_eq!(symbols.at(3)[0].name, "0x3");
    }
}
