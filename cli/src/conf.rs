//! # Knobs on the command line
//!
//! `--set KEY=VALUE` is checked here, against the engine's own table, before
//! anything starts: a bad word there is a wrong command line. The environment's
//! `ALLOTMENT_CONF` is merged in front and checked by the library, where a bad word
//! stops no program. Either costs a line in the table's own wording.

use allotment_engine::knob::{self, FIXED, Id, TABLE};
use allotment_engine::stat::board::CONF_ENV;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// What `ALLOTMENT_CONF` is to be, and what is wrong with what was asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// What it was, then what was set; a later setting of a knob replaces an earlier one. `None` if nothing is set.
    pub conf: Option<OsString>,
    /// One line for each setting that cannot be: it names the knob, its range, or the nearest name.
    pub wrong: Vec<String>,
}

/// The environment's settings with those of the command line.
pub fn merged(set: &[OsString]) -> Merged {
    merged_over(&[], set)
}

/// The same, with `defaults` for what neither sets.
pub fn merged_over(defaults: &[&str], set: &[OsString]) -> Merged {
    merge(defaults, std::env::var_os(CONF_ENV).as_deref(), set)
}

fn merge(defaults: &[&str], before: Option<&OsStr>, set: &[OsString]) -> Merged {
    let (mut words, mut wrong): (Vec<Cow<[u8]>>, _) =
        (defaults.iter().map(|word| word.as_bytes().into()).collect(), Vec::new());
    if let Some(before) = before {
        let given: Vec<&[u8]> = before.as_bytes().split(|&byte| byte == b',').filter(|word| !word.is_empty()).collect();
        words.retain(|default| given.iter().all(|word| key(word) != key(default)));
        words.extend(given.into_iter().map(Cow::from));
    }
    for word in set.iter().flat_map(|given| settings(given.as_bytes())) {
        match knob::parse(word) {
            Err(error) => wrong.push(format!("--set: {}", error.explain(word))),
            Ok((at, value)) => {
                words.retain(|earlier| key(earlier) != key(word));
                // As the library reads it: `1,024 KiB` has a comma, at which it would stop.
                let knob = &TABLE[at];
                words.push(format!("{}={}", knob.name, knob.show(value)).into_bytes().into());
            }
        }
    }
    Merged { conf: (!words.is_empty()).then(|| OsString::from_vec(words.join(&b','))), wrong }
}

/// `KEY=VALUE,KEY=VALUE`, apart: at each comma but one within a number (no key begins with a digit).
fn settings(given: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(given);
    std::iter::from_fn(move || {
        let text = rest?;
        let is_end = |at: &usize| text[*at] == b',' && !text.get(at + 1).is_some_and(u8::is_ascii_digit);
        let end = (0..text.len()).find(is_end);
        rest = end.map(|end| &text[end + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// What stands before the `=`.
fn key(word: &[u8]) -> &[u8] {
    word.split(|&byte| byte == b'=').next().unwrap_or(word)
}

/// The hard limit that a program will have, as it is written; `None` for none.
pub fn hard_limit(conf: &OsStr) -> Option<u64> {
    let set = conf.as_bytes().split(|&byte| byte == b',').filter_map(|word| knob::parse(word).ok());
    set.filter(|&(at, _)| at == Id::HardLimit as usize).map(|(_, value)| value).next_back().filter(|&value| value != 0)
}

/// Whether a knob is read at the start only.
pub fn is_fixed(at: usize) -> bool {
    FIXED.iter().any(|&id| id as usize == at)
}

/// The table for eyes.
pub fn table() -> String {
    let mut text = String::new();
    for knob in TABLE {
        let (default, range) = (knob.show(knob.default).to_string(), knob.range());
        text.push_str(&format!("{:<22} {default:<6} {range}\n{:29} {}\n", knob.name, "", knob.meaning));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(before: Option<&str>, set: &[&str]) -> (Option<String>, Vec<String>) {
        let set: Vec<_> = set.iter().map(OsString::from).collect();
        let Merged { conf, wrong } = super::merge(&[], before.map(OsStr::new), &set);
        (conf.map(|conf| conf.into_string().unwrap()), wrong)
    }

    #[test]
    fn set_goes_before_the_environment() {
        for (before, set, conf) in [
            (Some("mode=auto,lazy_floor=1M"), &["mode=fallback"][..], Some("lazy_floor=1M,mode=fallback")),
            (None, &[], None),
            (Some(""), &[], None),
            (None, &["mode=auto,index=cpu", "mode=sequences"], Some("index=cpu,mode=sequences")),
            (
                None,
                &["lazy_floor=1,024 KiB,mode=auto", "cache_floor=2.5 MiB"],
                Some("lazy_floor=1M,mode=auto,cache_floor=2560K"),
            ),
        ] {
            assert_eq!(merge(before, set), (conf.map(str::to_owned), Vec::new()));
        }
        for (before, set, conf) in [
            ("mode=auto", &[][..], "publish=on,mode=auto"),
            ("publish=off", &[], "publish=off"),
            ("", &["publish=off".into()], "publish=off"),
        ] {
            let merged = super::merge(&["publish=on"], Some(OsStr::new(before)), set);
            assert_eq!(merged, Merged { conf: Some(conf.into()), wrong: Vec::new() });
        }
    }

    /// (Every form of the line itself: `engine/src/knob.rs`.)
    #[test]
    fn a_bad_setting_is_explained_in_one_line() {
        let (conf, wrong) = merge(Some("index=cpu"), &["lazy_flor=1", "mode=auto,sheaf_objects=1021", "mode"]);
        assert_eq!(conf.as_deref(), Some("index=cpu,mode=auto"));
        for (line, word) in wrong.iter().zip(["lazy_flor=1", "sheaf_objects=1021", "mode"]) {
            let word = word.as_bytes();
            assert_eq!(*line, format!("--set: {}", knob::parse(word).unwrap_err().explain(word)));
            assert!(!line.contains('\n'));
        }
        assert_eq!(wrong.len(), 3);
    }
}
