//! What is found in a text, and what becomes of it.

use std::collections::HashSet;

use crate::find::{Constants, Finder, Found};
use crate::names;
use crate::weave::weave;

/// Everything found in a text of which nothing else is known.
fn find(text: &str) -> Found {
    let file = syn::parse_file(text).unwrap();
    let mut constants = Constants::default();
    constants.add(&file, false);
    constants.close();
    Finder::find("engine/src/x.rs", text, &file, &constants)
}

fn changes(text: &str) -> Vec<String> {
    find(text).mutants.iter().map(|mutant| format!("{} -> {}", mutant.original, mutant.changed)).collect()
}

/// The text with all mutants, numbered from 1.
fn woven(text: &str) -> String {
    weave(text, &find(text), |at| at as u32 + 1).text
}

#[test]
fn every_kind_is_found() {
    let body = |body: &str| changes(&format!("fn f(a: i32, b: i32) -> Kind {{ {body} }}"));
    assert_eq!(body("a < b"), ["a < b -> a <= b", "a < b -> a >= b"]);
    assert_eq!(body("a += b;"), ["a += b -> a -= b"]);
    assert_eq!(body("-a"), ["-a -> a"]);
    assert_eq!(body("if ready() {}"), ["if ready() -> if true", "if ready() -> if false"]);
    assert_eq!(body("while ready() {}"), ["while ready() -> while false"]);
    assert_eq!(body("give(a);"), ["give(a); -> nothing"]);
    assert_eq!(
        body("match a { 0 => x, 1 if b() => y, _ => z }"),
        ["0 => -> no arm", "if b() -> if true", "if b() -> if false"]
    );
    assert_eq!(changes("fn f() -> bool { x }"), ["body -> { true }", "body -> { false }"]);
    assert_eq!(changes("fn f() { x() }"), ["body -> { () }"]);
}

#[test]
fn what_is_no_code_of_ours_is_left_alone() {
    for text in [
        "#[cfg(test)] mod tests { fn f() -> bool { a < b } }",
        "#[cfg(not(test))] fn f() -> bool { a < b }",
        "#[cfg(target_arch = \"m68k\")] fn f() -> bool { a < b }",
        "#[unsafe(naked)] extern \"C\" fn f() { g(); }",
        "fn f(a: [u8; N + 1]) -> Kind<{ 1 + 1 }> { asm!(\"\", in(reg) 1 + 1) }",
        "fn f() -> Kind { match a { 1..=N => Kind::<{ N + 1 }>::new(), other => [0; N + 1] } }",
        "fn f() -> Kind { if let Some(x) = y && z { x } }",
        "fn f() {}",
        "fn f() -> bool { false }",
    ] {
        let wanted: &[&str] = if text.ends_with("{ false }") { &["body -> { true }"] } else { &[] };
        assert_eq!(changes(text), wanted, "{text}");
    }
}

#[test]
fn a_function_is_constant_only_where_a_constant_needs_it() {
    let text = "const A: u32 = b() + 1; const fn b() -> u32 { c() } const fn c() -> u32 { 7 - 4 } const fn d() -> u32 { 2 * 2 }";
    let found = find(text);
    assert_eq!(found.mutants.iter().map(|mutant| &*mutant.function).collect::<HashSet<_>>(), HashSet::from(["d"]));
    // `+`; both values of b; both of c, and `-`.
    assert_eq!(found.constant, 6);
    assert!(woven(text).ends_with(
        "      fn d() -> u32 { if crate::mutants::on(1) {return 0;} if crate::mutants::on(2) {return 1;} \
         (if crate::mutants::on(3) {(2) + (2)} else {(2 * 2)}) }"
    ));
}

#[test]
fn places_in_places_keep_their_lines_and_their_order() {
    let text = "fn f() -> Kind {\n    if a &&\n        b == c { g(!d); }\n}";
    let woven = woven(text);
    assert_eq!(woven.lines().count(), text.lines().count());
    assert_eq!(
        woven,
        "fn f() -> Kind {\n    if (if crate::mutants::on(1) {true} else if crate::mutants::on(2) {false} else \
         if crate::mutants::on(3) {(a) || (b == c)} else {(a &&\n        \
         (if crate::mutants::on(4) {(b) != (c)} else {(b == c)}))}) \
         { if !crate::mutants::on(5) {g((if crate::mutants::on(6) {d} else {(!d)}));} }\n}"
    );
    syn::parse_file(&woven).unwrap();
}

#[test]
fn codes_are_where_the_compiler_sees_them() {
    let text = "fn f() -> usize { a + b * c }";
    let found = find(text);
    // The second is left out.
    let woven = weave(text, &found, |at| if at == 1 { 0 } else { at as u32 + 1 });
    let codes: Vec<_> = woven.codes.iter().map(|(range, number)| (&woven.text[range.clone()], *number)).collect();
    assert_eq!(codes, [("return 0;", 1), ("(a) - (b * c)", 3), ("(b) + (c)", 4)]);
    assert!(woven.sites.iter().all(|(range, numbers)| !range.is_empty() && !numbers.is_empty()));
}

#[test]
fn names_survive_moves() {
    let file = std::env::temp_dir().join(format!("mutants-names.{}", std::process::id()));
    std::fs::write(&file, "survives: engine/src/x.rs:3:12: f: a < b -> a <= b\n3 seconds\n").unwrap();
    assert_eq!(names(file.to_str().unwrap()).unwrap(), HashSet::from(["engine/src/x.rs: f: a < b -> a <= b".into()]));
    std::fs::remove_file(file).unwrap();
}
