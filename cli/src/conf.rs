//! # Knobs on the command line
//!
//! `--set KEY=VALUE` is checked here, against the engine's own table, before
//! anything starts; the environment's `ALLOTMENT_CONF` is merged in front and
//! checked by the library, which never stops a program for a bad word.

use allotment_engine::knob::{self, Kind, Knob, TABLE, Wrong};
use allotment_engine::stat::board::CONF_ENV;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// What `ALLOTMENT_CONF` is to be: what it was, then `set`; a later setting of
/// a knob replaces an earlier one. `None` if nothing is set.
///
/// # Errors
/// One line that names the knob, its range, or the nearest name.
pub fn merged(set: &[OsString]) -> Result<Option<OsString>, String> {
    merge(std::env::var_os(CONF_ENV).as_deref(), set)
}

fn merge(before: Option<&OsStr>, set: &[OsString]) -> Result<Option<OsString>, String> {
    let mut words: Vec<&[u8]> = Vec::new();
    if let Some(before) = before {
        words.extend(before.as_bytes().split(|&byte| byte == b',').filter(|word| !word.is_empty()));
    }
    for given in set {
        for word in given.as_bytes().split(|&byte| byte == b',') {
            knob::parse(word).map_err(|wrong| explain(word, wrong))?;
            let key = key(word);
            words.retain(|earlier| self::key(earlier) != key);
            words.push(word);
        }
    }
    Ok((!words.is_empty()).then(|| OsString::from_vec(words.join(&b','))))
}

/// What stands before the `=`.
fn key(word: &[u8]) -> &[u8] {
    word.split(|&byte| byte == b'=').next().unwrap_or(word)
}

/// One line about a setting that cannot be.
fn explain(word: &[u8], wrong: Wrong) -> String {
    let word = word.escape_ascii();
    match wrong {
        Wrong::Form => format!("--set {word}: KEY=VALUE is needed; `allotment run --knobs` lists the keys"),
        Wrong::Name(nearest) => {
            let near = &TABLE[nearest];
            format!("--set {word}: there is no such knob; the nearest is `{}`, which takes {}", near.name, range(near))
        }
        Wrong::Value(at) => format!("--set {word}: `{}` takes {}", TABLE[at].name, range(&TABLE[at])),
    }
}

/// A knob's range in words.
fn range(knob: &Knob) -> String {
    match knob.kind {
        Kind::Word(words) => format!("one of {}", words.join(", ")),
        Kind::Count => format!("a number from {} to {}", knob.min, knob.max),
        Kind::Bytes => format!("bytes from {} to {}", short(knob.min), short(knob.max)),
    }
}

/// Bytes as one would write them.
fn short(bytes: u64) -> String {
    for (shift, suffix) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// The table for eyes.
pub fn table() -> String {
    let mut text = String::new();
    for knob in TABLE {
        let default = match knob.kind {
            Kind::Word(words) => usize::try_from(knob.default)
                .ok()
                .and_then(|at| words.get(at))
                .map_or_else(String::new, |word| (*word).to_owned()),
            Kind::Count => knob.default.to_string(),
            Kind::Bytes => short(knob.default),
        };
        text.push_str(&format!("{:<14} {default:<6} {}\n{:21} {}\n", knob.name, range(knob), "", knob.meaning));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn set_goes_before_the_environment() {
        let merged = merge(Some(OsStr::new("mode=auto,lazy_floor=1M")), &given(&["mode=fallback"]));
        assert_eq!(merged, Ok(Some("lazy_floor=1M,mode=fallback".into())));
        assert_eq!(merge(None, &[]), Ok(None));
        assert_eq!(merge(Some(OsStr::new("")), &[]), Ok(None));
        let merged = merge(None, &given(&["mode=auto,index=cpu", "mode=sequences"]));
        assert_eq!(merged, Ok(Some("index=cpu,mode=sequences".into())));
    }

    #[test]
    fn a_bad_setting_is_explained_in_one_line() {
        let name = merge(None, &given(&["lazy_flor=1"])).unwrap_err();
        assert!(name.contains("`lazy_floor`") && name.contains("from 0 to 64G"), "{name}");
        let value = merge(None, &given(&["sheaf_objects=1000"])).unwrap_err();
        assert!(value.contains("`sheaf_objects` takes a number from 2 to 126"), "{value}");
        let form = merge(None, &given(&["mode"])).unwrap_err();
        assert!(form.contains("KEY=VALUE"), "{form}");
        for line in [name, value, form] {
            assert!(!line.contains('\n'));
        }
    }
}
