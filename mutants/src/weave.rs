//! # All mutants of a file in one text
//!
//! Only insertions (and blanks for `const`), so that every line stays where it is. A changed branch holds the original
//! text of what is in it: one mutant is on at a time, and the text grows with the depth of expressions, not more.

use std::ops::Range;

use crate::find::{Form, Found, Mutant, Site};

/// A file's new text, and where its mutants are in it.
#[derive(Debug)]
pub struct Woven {
    pub text: String,
    /// Each mutant's own code in `text`.
    pub codes: Vec<(Range<usize>, u32)>,
    /// Each place in `text`, with its mutants.
    pub sites: Vec<(Range<usize>, Vec<u32>)>,
}

/// Something that comes into the text.
struct Piece {
    at: usize,
    /// Among those at one place: ends of inner places, of outer ones, begins of bodies, begins of outer places, of inner.
    rank: (u8, isize),
    text: String,
    /// Codes of mutants in `text`.
    codes: Vec<(Range<usize>, u32)>,
    /// The site that begins or ends here.
    site: usize,
}

/// Weaves those mutants in whose number `number` gives (0: left out).
pub fn weave(original: &str, found: &Found, number: impl Fn(usize) -> u32) -> Woven {
    let mut text = original.to_owned();
    let mut pieces = Vec::new();
    for (index, site) in found.sites.iter().enumerate() {
        if site.form == Form::Blank {
            text.replace_range(site.range.clone(), &" ".repeat(site.range.len()));
            continue;
        }
        let mutants: Vec<_> = site.mutants.iter().map(|at| (number(*at), &found.mutants[*at])).collect();
        let mutants: Vec<_> = mutants.into_iter().filter(|(number, _)| *number != 0).collect();
        if !mutants.is_empty() {
            push(&mut pieces, index, site, &mutants);
        }
    }
    pieces.sort_by_key(|piece| (piece.at, piece.rank));
    let mut woven = Woven { text: String::new(), codes: Vec::new(), sites: Vec::new() };
    let mut begins = vec![0; found.sites.len()];
    let mut done = 0;
    for piece in pieces {
        woven.text.push_str(&text[done..piece.at]);
        done = piece.at;
        let begin = woven.text.len();
        let codes = piece.codes.into_iter().map(|(range, number)| (range.start + begin..range.end + begin, number));
        woven.codes.extend(codes);
        woven.text.push_str(&piece.text);
        let site = &found.sites[piece.site];
        let is_end = piece.rank.0 == 0;
        if !is_end {
            begins[piece.site] = begin;
        }
        if is_end || site.range.is_empty() {
            let numbers = site.mutants.iter().map(|at| number(*at)).filter(|number| *number != 0).collect();
            woven.sites.push((begins[piece.site]..woven.text.len(), numbers));
        }
    }
    woven.text.push_str(&text[done..]);
    woven
}

/// What a place needs before and behind it.
fn push(pieces: &mut Vec<Piece>, site: usize, of: &Site, mutants: &[(u32, &Mutant)]) {
    let (mut text, mut codes) = (String::new(), Vec::new());
    let mut add = |before: String, code: &str, after: &str, number: u32| {
        text.push_str(&before);
        let begin = text.len();
        text.push_str(code);
        codes.push((begin..text.len(), number));
        text.push_str(after);
    };
    for (index, (number, mutant)) in mutants.iter().enumerate() {
        let on = format!("crate::mutants::on({number})");
        match of.form {
            Form::Instead if index == 0 => add(format!("(if {on} {{"), &mutant.code, "} else ", *number),
            Form::Instead => add(format!("if {on} {{"), &mutant.code, "} else ", *number),
            Form::Enter => add(format!(" if {on} {{"), &mutant.code, "}", *number),
            Form::Unless => add("if !".into(), &on, " {", *number),
            Form::Arm => add(" if !".into(), &on, "", *number),
            Form::Blank => {}
        }
    }
    let end = match of.form {
        Form::Instead => {
            text.push_str("{(");
            ")})"
        }
        Form::Unless => "}",
        _ => "",
    };
    let rank = if of.range.is_empty() { (1, 0) } else { (2, -(of.range.end as isize)) };
    pieces.push(Piece { at: of.range.start, rank, text, codes, site });
    if !of.range.is_empty() {
        let rank = (0, -(of.range.start as isize));
        pieces.push(Piece { at: of.range.end, rank, text: end.into(), codes: Vec::new(), site });
    }
}
