//! Writes the engine's board with smaller bounds, and the variants of its slab layer that the
//! models run: one as it is, over four-object slabs, and canaries with a rule taken out. A text that is no longer
//! there fails the test, so that a canary cannot outlive the rule that it is for.

use std::path::Path;
use std::{env, fs};

/// A board of two classes and few sets.
const BOARD: &[(&str, &str)] = &[
    ("SETS_MAX: usize = 16_380;", "SETS_MAX: usize = 12;"),
    ("CLASSES_MAX: usize = 128;", "CLASSES_MAX: usize = 2;"),
    ("BOARD_BYTES: usize = 16 * 1024;", "BOARD_BYTES: usize = 8192;"),
    ("FRONT_CLASSES: usize = 50;", "FRONT_CLASSES: usize = 0;"),
];
/// What is replaced in all of the slab layer's, which is one file here: the size classes, and a look at what is locked.
const ALL: &[(&str, &str)] = &[
    ("pub mod class;", "pub use crate::class;"),
    ("\n#[cfg(test)]\nmod tests;\n", "\n"),
    ("\nuse class::", "\nuse crate::class::"),
    (
        "self.bits[(slab as usize >> 7) % BIT_LOCKS].0.lock_brief()",
        "let guard = self.bits[(slab as usize >> 7) % BIT_LOCKS].0.lock_brief();
        crate::machine::assert_live(slab as usize);
        guard",
    ),
    (
        "let mut partial = self.slabs.partial[(*slab).node as usize]",
        "crate::machine::assert_live(slab as usize);
        let mut partial = self.slabs.partial[(*slab).node as usize]",
    ),
    (
        "let node = unsafe { (*slab).node } as usize;",
        "let node = unsafe {
                crate::machine::assert_live(slab as usize);
                (*slab).node
            } as usize;",
    ),
    (
        "let (class, pfn, objects) = ((*slab).class as usize",
        "crate::machine::assert_live(slab as usize);
        let (class, pfn, objects) = ((*slab).class as usize",
    ),
];
/// What each variant replaces, besides.
const VARIANTS: &[(&str, &[(&str, &str)])] = &[
    ("slab", &[]),
    // The last object's bit is set at once, before the list is locked.
    (
        "slab_without_last",
        &[
            ("=> last = Some(index),", "=> {\nlast = Some(index);\nSlab::set_free(slab, index);\n}"),
            // (Setting it again does nothing.)
            (
                "(*slab).free += 1;",
                "(*slab).free = Self::bitmap(slab).iter().map(|word| word.count_ones()).sum::<u32>() as u16;",
            ),
        ],
    ),
    // One by one, objects come back to a full slab, too, and nobody lists it.
    ("slab_full_unlisted", &[("free > 0 && free + 1 < shape.objects", "free + 1 < shape.objects")]),
    // A trim puts a slab back before it gives its pages back.
    (
        "slab_trim_shared",
        &[(
            concat!(
                "if !waits() {\n                    bytes += self.trim_slab(class, slab.as_ptr());\n",
                "                }\n                self.relinquish(class, slab.as_ptr());"
            ),
            "self.relinquish(class, slab.as_ptr());\n                bytes += self.trim_slab(class, slab.as_ptr());",
        )],
    ),
    // Whoever finds the slab empty unmakes it, listed or not (it may be in a refiller's hand).
    (
        "slab_unlisted",
        &[
            ("(*slab).free == (*slab).objects && (*slab).on_list", "(*slab).free == (*slab).objects"),
            (
                "partial.remove(slab);\n                }\n                empty",
                "if (*slab).on_list { partial.remove(slab); }\n                }\n                empty",
            ),
        ],
    ),
];

/// Canaries of the level counter.
const LEVELS: &[(&str, &[(&str, &str)])] = &[(
    "level_folder_writes",
    &[("units.set_byte(self.at.at(SHADOW), index, d)", "units.set_byte(self.at, index, 0)")],
)];

/// What is replaced in all of the gate's.
const GATE: &[(&str, &str)] = &[
    ("use super::atomic", "use crate::arch::atomic"),
    ("use super::lock", "use crate::arch::lock"),
    ("use super::naps", "use crate::arch::naps"),
    ("use super::sys", "use crate::arch::sys"),
    ("ROOMS: usize = 128;", "ROOMS: usize = 4;"),
    ("NOTES: usize = 448;", "NOTES: usize = 4;"),
    ("\n#[cfg(test)]\nmod tests;\n", "\n"),
];
/// The gate as it is, and canaries.
const GATES: &[(&str, &[(&str, &str)])] = &[
    ("gate", &[]),
    ("gate_rushes", &[("if !self.rooms.iter().any(is_awaited) {", "if true {")]),
    (
        "gate_blind",
        &[(
            "if self.state.load(SeqCst) == 0 {\n            return Some(Inside",
            "if true {\n            return Some(Inside",
        )],
    ),
    (
        "gate_alone_beside",
        &[("if self.rooms.iter().any(is_inside) {", "if false && self.rooms.iter().any(is_inside) {")],
    ),
    // What a frame did behind a seal is not copied; who waits in vain and is the last leaves all closed.
    ("gate_is_never_stale", &[("self.sealed.store(STALE, Relaxed);", "")]),
    (
        "gate_leaves_closed",
        &[("                self.end_fork(turn, open);\n", "                self.end_fork(turn, || ());\n")],
    ),
    ("gate_ends_all", &[("saturating_sub(begun >> 1)", "saturating_sub(0)")]),
    ("gate_notes_apart", &[("!(apart && self.own_vforks() > 0) && self.note(", "self.note(")]),
    // Forks make way as long as it takes; or not at all.
    ("gate_patient", &[("SEAL_NAPS: u32 = 2000;", "SEAL_NAPS: u32 = u32::MAX;")]),
    (
        "gate_makes_no_way",
        &[("SEAL_NAPS: u32 = 2000;", "SEAL_NAPS: u32 = u32::MAX;"), ("        self.make_way();\n", "")],
    ),
    ("gate_ends_one", &[("self.own_notes(VFORKS).saturating_sub(begun >> 1)", "begun & 1")]),
];

/// The gates of the fast paths as they are, and a canary.
const FAST: &[(&str, &[(&str, &str)])] =
    &[("gates", &[]), ("gates_looks_once", &[("if wanted() == gate {", "if true {")])];

/// The areas that wait for the next request as they are, and canaries.
const WIDE: &[(&str, &[(&str, &str)])] = &[
    ("wide", &[]),
    // Whoever saw an area has it.
    (
        "wide_takes_blindly",
        &[("slot.area.compare_exchange(area, 0, Acquire, Relaxed).is_ok()", "{ slot.area.store(0, Relaxed); true }")],
    ),
    // Whoever saw room leaves one there.
    (
        "wide_puts_blindly",
        &[(
            "slot.area.compare_exchange(0, area, Release, Relaxed).is_ok()",
            "{ slot.area.store(area, Release); true }",
        )],
    ),
];

/// What is replaced in what per-CPU memory has of the system: a small map of addresses, the machine's mappings.
const MEMORY: &[(&str, &str)] = &[
    ("super::", "crate::percpu::"),
    ("LEAVES: usize = 1 << (ADDRESS_BITS - UNIT_SHIFT - LEAF_BITS);", "LEAVES: usize = 1;"),
    ("use crate::arch::{ADDRESS_BITS, PAGE};", "use crate::arch::PAGE;"),
    ("LEAF_BITS: u32 = 15;", "LEAF_BITS: u32 = 9;"),
    ("AREA: usize = 512 << 10;", "AREA: usize = 8 << 10;"),
    ("let unit = address >> UNIT_SHIFT;", "let unit = crate::machine::page_number(address);"),
    ("base >> UNIT_SHIFT >> LEAF_BITS", "crate::machine::page_number(base) >> LEAF_BITS"),
    (
        "sys::map(hint, len, Access::ReadWrite).ok()",
        "Some(crate::machine::mapping(len, if len.is_power_of_two() { len } else { 4096 }))",
    ),
];
/// And in all of a space's: few claims.
const SPACE: &[(&str, &str)] = &[
    ("super::memory::", "crate::space_memory::"),
    ("super::", "crate::percpu::"),
    ("\n#[cfg(test)]\nmod tests;\n", "\n"),
    ("CLAIMS: usize = 64;", "CLAIMS: usize = 2;"),
    (
        "unsafe { sys::unmap(base, (self.units.indices() + 1) * UNIT) };",
        "{ crate::machine::retire(base); Ok::<(), sys::Errno>(()) };",
    ),
];
/// Per-CPU memory as it is, and canaries.
const SPACES: &[(&str, &[(&str, &str)])] = &[
    ("space", &[]),
    // Whoever read a claim allocates in its chunk, taken away or not.
    (
        "space_claim_stays",
        &[(
            "if body.owner == claim as u32 + 1\n",
            "if { assert!(body.base != 0, \"VIOLATION: allocated in a chunk without memory\"); true }\n",
        )],
    ),
    // What was empty when its last object went is given back, empty or not.
    ("space_returns_blindly", &[("if body.live != 0 || body.first ||", "if body.first ||")]),
];

/// The engine's file as `include!` takes it: without inner comments and attributes.
fn text(path: &str) -> String {
    let path = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("../engine/src").join(path);
    println!("cargo::rerun-if-changed={}", path.display());
    let text = fs::read_to_string(&path).expect("a file of the engine");
    text.lines()
        .filter(|line| !line.starts_with("//!") && !line.starts_with("#!["))
        .flat_map(|line| [line, "\n"])
        .collect()
}

fn write<'a>(name: &str, mut text: String, changes: impl Iterator<Item = &'a (&'a str, &'a str)>) {
    let mut missing = vec![];
    for (from, to) in changes {
        if !text.contains(from) {
            missing.push(from);
        }
        text = text.replace(from, to);
    }
    // (The models would go on, but of something else, or for ever.)
    text += &format!(
        "/// Texts that are no longer there.\npub const MISSING: &[&str] = &{missing:?};\n\
         const _: () = assert!(MISSING.is_empty(), \"models/build.rs names a text that is no longer there\");\n"
    );
    let path = Path::new(&env::var("OUT_DIR").expect("set by cargo")).join(format!("{name}.rs"));
    fs::write(path, text).expect("written");
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // What leaves out the engine's tests that use more of it than there is here.
    println!("cargo::rustc-cfg=allotment_models");
    write("board", text("stat/board.rs"), BOARD.iter());
    for (name, changes) in LEVELS {
        write(name, text("counter/level.rs"), changes.iter());
    }
    for (name, changes) in GATES {
        write(name, text("arch/gate.rs"), GATE.iter().chain(*changes));
    }
    for (name, changes) in FAST {
        write(name, text("heap/gates.rs"), changes.iter());
    }
    for (name, changes) in WIDE {
        write(name, text("vmap/wide.rs"), changes.iter());
    }
    write("space_memory", text("percpu/memory.rs"), MEMORY.iter());
    let space = text("percpu/space.rs");
    for (name, changes) in SPACES {
        write(name, space.clone(), SPACE.iter().chain(*changes));
    }
    let (slab, bits) = (text("slab/mod.rs"), format!("\nmod bits {{\n{}}}\n", text("slab/bits.rs")));
    let whole = [("\nmod bits;\n", &*bits)];
    for (name, changes) in VARIANTS {
        write(name, slab.clone(), whole.iter().chain(ALL).chain(*changes));
    }
}
