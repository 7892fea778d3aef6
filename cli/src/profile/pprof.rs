//! # pprof's format
//!
//! A gzip-ed protocol buffer, written by hand: field numbers are those of pprof's `profile.proto`. Four values a
//! sample: objects and bytes allocated, objects and bytes in use (shown first).

use super::named::{Named, Stack};
use super::read::{Amount, Profile};
use super::symbols::{self, Function, Symbols};
use crate::term::printable;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::unix::fs::FileExt as _;

/// A message that grows.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
    /// A number; 0 is left out, as it is what is read then.
    fn number(&mut self, field: u64, value: u64) -> &mut Self {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
        self
    }
    fn bytes(&mut self, field: u64, value: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }
    fn message(&mut self, field: u64, value: &Message) -> &mut Self {
        self.bytes(field, &value.0)
    }
    fn packed(&mut self, field: u64, values: impl IntoIterator<Item = u64>) -> &mut Self {
        let mut packed = Message::default();
        values.into_iter().for_each(|value| packed.varint(value));
        self.bytes(field, &packed.0)
    }
}

/// All strings, each once; number 0 is empty.
struct Strings {
    numbers: HashMap<String, u64>,
    all: Vec<String>,
}

impl Strings {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.all.len() as u64;
        self.numbers.insert(text.to_owned(), number);
        self.all.push(text.to_owned());
        number
    }
    fn value_type(&mut self, kind: &str, unit: &str) -> Message {
        let (kind, unit) = (self.number(kind), self.number(unit));
        let mut message = Message::default();
        message.number(1, kind).number(2, unit);
        message
    }
}

/// Writes a profile. `duration_ns` is what it covers, `time_ns` its end in the world's time.
///
/// # Errors
/// Those of the file.
pub fn write(
    out: impl Write,
    profile: &Profile,
    symbols: &mut Symbols,
    time_ns: u64,
    duration_ns: u64,
) -> io::Result<()> {
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&encode(profile, symbols, time_ns, duration_ns))?;
    gzip.finish()?.flush()
}

/// Whether a file is compressed as these are.
pub fn is_one(file: &File) -> bool {
    let mut start = [0; 2];
    file.read_exact_at(&mut start, 0).is_ok() && start == [0x1f, 0x8b]
}

/// Most bytes of a profile: what this command writes is far below.
const MOST: u64 = 256 << 20;
/// Most bytes of all its stacks' names.
const ROOM: usize = 2 << 30;

/// Reads what [`write`] has written: names instead of addresses.
///
/// # Errors
/// One line: what the file is instead.
pub fn read(file: &File) -> Result<Named, String> {
    let mut bytes = Vec::new();
    let gone = GzDecoder::new(file).take(MOST + 1).read_to_end(&mut bytes).is_err();
    if gone || bytes.len() as u64 > MOST {
        return Err("is damaged, or no heap profile in pprof's format".into());
    }
    decode(&bytes, ROOM)
        .ok_or_else(|| "is no heap profile in pprof's format with objects and bytes allocated and in use".into())
}

/// The fields of a message: number, and a number or bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    /// `None` within: not of this format.
    type Item = Option<(u64, u64, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let mut field = || {
            let (key, value) = (self.varint()?, self.varint()?);
            match key & 7 {
                0 => Some((key >> 3, value, &self.0[..0])),
                2 => {
                    let (part, rest) = self.0.split_at_checked(usize::try_from(value).ok()?)?;
                    self.0 = rest;
                    Some((key >> 3, 0, part))
                }
                _ => None,
            }
        };
        let field = field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// The fields of a message, all or none.
fn fields(bytes: &[u8]) -> Option<Vec<(u64, u64, &[u8])>> {
    Fields(bytes).collect()
}

/// The first number of a field.
fn number(fields: &[(u64, u64, &[u8])], field: u64) -> u64 {
    fields.iter().find(|&&(at, ..)| at == field).map_or(0, |&(_, number, _)| number)
}

/// The numbers of a repeated field, packed or not.
fn numbers(fields: &[(u64, u64, &[u8])], field: u64) -> Option<Vec<u64>> {
    let mut all = Vec::new();
    for &(_, number, bytes) in fields.iter().filter(|&&(at, ..)| at == field) {
        let mut packed = Fields(bytes);
        if bytes.is_empty() {
            all.push(number);
        }
        while !packed.0.is_empty() {
            all.push(packed.varint()?);
        }
    }
    Some(all)
}

/// `room`: bytes for all names, which a few bytes can mention very often.
fn decode(bytes: &[u8], mut room: usize) -> Option<Named> {
    let all = fields(bytes)?;
    let of = |field: u64| all.iter().filter(move |&&(at, ..)| at == field).map(|&(.., bytes)| bytes);
    let strings: Vec<String> = of(6).map(|bytes| printable(&String::from_utf8_lossy(bytes))).collect();
    let string = |number: u64| strings.get(usize::try_from(number).ok()?).cloned();
    let kinds: Vec<String> = of(1).map(|kind| string(number(&fields(kind)?, 1))).collect::<Option<_>>()?;
    let place = |kind: &str| kinds.iter().position(|name| name == kind);
    let places = [place("alloc_objects")?, place("alloc_space")?, place("inuse_objects")?, place("inuse_space")?];
    let mut functions: HashMap<u64, Function> = HashMap::new();
    for function in of(5) {
        let function = fields(function)?;
        let text = |field| string(number(&function, field));
        let one = Function { name: text(2)?, system_name: text(3)?, file: text(4)?, line: 0 };
        functions.insert(number(&function, 1), one);
    }
    let size = |function: &Function| {
        size_of::<Function>() + function.name.len() + function.system_name.len() + function.file.len()
    };
    let mut locations: HashMap<u64, Vec<Function>> = HashMap::new();
    for location in of(4) {
        let location = fields(location)?;
        let mut names = Vec::new();
        for &(.., line) in location.iter().filter(|&&(at, ..)| at == 4) {
            let line = fields(line)?;
            let function = functions.get(&number(&line, 1))?;
            room = room.checked_sub(size(function))?;
            names.push(Function { line: number(&line, 2).try_into().unwrap_or(0), ..function.clone() });
        }
        locations.insert(number(&location, 1), names);
    }
    let mut stacks = Vec::new();
    for sample in of(2) {
        let sample = fields(sample)?;
        let values = numbers(&sample, 2)?;
        let value = |at: usize| values.get(places[at]).map(|&value| value.cast_signed());
        let amount = |objects: i64, bytes: i64| Amount {
            samples: i64::from(objects != 0 || bytes != 0),
            bytes,
            objects: objects.saturating_mul(1 << 16),
        };
        let mut stack =
            Stack { allocated: amount(value(0)?, value(1)?), live: amount(value(2)?, value(3)?), ..Stack::default() };
        for location in numbers(&sample, 1)? {
            let functions = locations.get(&location)?;
            room = room.checked_sub(functions.iter().map(size).sum())?;
            stack.functions.extend(functions.iter().cloned());
        }
        stacks.push(stack);
    }
    let mean = number(&all, 12);
    Some(Named { mean, is_exact: mean == 1, stacks, ..Named::default() })
}

fn encode(profile: &Profile, symbols: &mut Symbols, time_ns: u64, duration_ns: u64) -> Vec<u8> {
    let mut strings = Strings { numbers: HashMap::from([(String::new(), 0)]), all: vec![String::new()] };
    let mut message = Message::default();
    for (kind, unit) in
        [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")]
    {
        let value_type = strings.value_type(kind, unit);
        message.message(1, &value_type);
    }
    let mut locations: HashMap<u64, u64> = HashMap::new();
    let mut functions: HashMap<Function, u64> = HashMap::new();
    let (mut location_messages, mut function_messages) = (Vec::new(), Vec::new());
    for stack in &profile.stacks {
        if stack.allocated == Amount::default() && stack.live == Amount::default() {
            continue;
        }
        let frames = symbols::callers(&stack.frames, symbols);
        for &address in frames {
            if locations.contains_key(&address) {
                continue;
            }
            let number = locations.len() as u64 + 1;
            locations.insert(address, number);
            let mut location = Message::default();
            location.number(1, number);
            location.number(2, symbols.mapping_of(address).map_or(0, |mapping| mapping as u64 + 1));
            location.number(3, address);
            for function in symbols.at(address) {
                let next = functions.len() as u64 + 1;
                // A line is the call's, not the function's.
                let key = Function { line: 0, ..function.clone() };
                let number = *functions.entry(key).or_insert(next);
                if number == next {
                    let (name, system, file) = (
                        strings.number(&function.name),
                        strings.number(&function.system_name),
                        strings.number(&function.file),
                    );
                    let mut message = Message::default();
                    message.number(1, number).number(2, name).number(3, system).number(4, file);
                    function_messages.push(message);
                }
                let mut line = Message::default();
                line.number(1, number).number(2, u64::from(function.line));
                location.message(4, &line);
            }
            location_messages.push(location);
        }
        let mut sample = Message::default();
        sample.packed(1, frames.iter().map(|address| locations[address]));
        let values = [stack.allocated.whole(), stack.allocated.bytes, stack.live.whole(), stack.live.bytes];
        sample.packed(2, values.map(i64::cast_unsigned));
        message.message(2, &sample);
    }
    for (at, mapping) in symbols.mappings().into_iter().enumerate() {
        let (path, build_id) = (strings.number(&mapping.path), strings.number(&mapping.build_id));
        let mut one = Message::default();
        // Functions, files and lines are here: nobody needs to look at the files again.
        one.number(1, at as u64 + 1).number(2, mapping.start).number(3, mapping.end).number(5, path);
        one.number(6, build_id).number(7, 1).number(8, 1).number(9, 1).number(10, 1);
        message.message(3, &one);
    }
    location_messages.iter().for_each(|location| _ = message.message(4, location));
    function_messages.iter().for_each(|function| _ = message.message(5, function));
    let (period_type, default) = (strings.value_type("space", "bytes"), strings.number("inuse_space"));
    for text in &strings.all {
        message.bytes(6, text.as_bytes());
    }
    message.number(9, time_ns).number(10, duration_ns).message(11, &period_type);
    message.number(12, profile.mean).number(14, default);
    message.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::read::tests::{parse, sample};

    fn fields(bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
        super::fields(bytes).expect("a message")
    }

    #[test]
    fn fields_are_those_of_the_format() {
        let profile = parse(&sample()).expect("whole");
        let mut symbols = Symbols::new(&profile, None, None);
        let mut bytes = Vec::new();
        write(&mut bytes, &profile, &mut symbols, 7, 9).expect("written");
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut plain).expect("gzip");
        let all = fields(&plain);
        let of = |field| all.iter().filter(move |&&(at, ..)| at == field).collect::<Vec<_>>();
        let strings: Vec<&str> = of(6).iter().map(|(.., text)| std::str::from_utf8(text).expect("UTF-8")).collect();
        assert_eq!(strings[0], "");
        let text = |number: u64| strings[number as usize];
        let kinds: Vec<&str> = of(1).iter().map(|(.., kind)| text(fields(kind)[0].1)).collect();
        assert_eq!(kinds, ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]);
        assert_eq!(of(2).len(), 2);
        // The first sample: two locations, four values.
        let sample = fields(of(2)[0].2);
        assert_eq!(sample[0], (1, 0, &[1, 2][..]));
        assert_eq!(sample[1].0, 2);
        assert_eq!(sample[1].2[..1], [50]);
        // The first location: number, mapping, address, and a line with a function.
        let location = fields(of(4)[0].2);
        assert_eq!((location[0].1, location[1].1, location[2].1), (1, 1, 0x1234));
        let function = fields(of(5)[fields(location[3].2)[0].1 as usize - 1].2);
        assert_eq!(text(function[1].1), "a+0x233");
        let mapping = fields(of(3)[0].2);
        assert_eq!((mapping[1].1, mapping[2].1, text(mapping[3].1)), (0x1000, 0x9000, "/lib/a"));
        assert_eq!((of(9)[0].1, of(10)[0].1, of(12)[0].1), (7, 9, 4096));
        assert_eq!(text(of(14)[0].1), "inuse_space");
    }

    #[test]
    fn what_was_written_is_read_by_name() {
        let profile = parse(&sample()).expect("whole");
        let mut symbols = Symbols::new(&profile, None, None);
        let named = Named::of(&profile, &mut symbols);
        let bytes = encode(&profile, &mut symbols, 7, 9);
        let read = decode(&bytes, ROOM).expect("whole");
        assert_eq!((read.mean, read.stacks.len()), (4096, named.stacks.len()));
        for (read, written) in read.stacks.iter().zip(&named.stacks) {
            assert_eq!(read.functions, written.functions);
            assert_eq!((read.live.bytes, read.live.whole()), (written.live.bytes, written.live.whole()));
            assert_eq!(
                (read.allocated.bytes, read.allocated.objects),
                (written.allocated.bytes, written.allocated.objects)
            );
        }
        // Whatever is cut or changed: an answer or none, never a panic.
        for end in 0..bytes.len() {
            let _ = decode(&bytes[..end], ROOM);
            let mut wrong = bytes.clone();
            wrong[end] ^= 0xff;
            let _ = decode(&wrong, ROOM);
        }
        assert!(decode(b"", ROOM).is_none());
    }

    #[test]
    fn what_is_read_is_printable_and_bounded() {
        let profile = parse(&sample()).expect("whole");
        let mut bytes = encode(&profile, &mut Symbols::new(&profile, None, None), 7, 9);
        let at = bytes.windows(7).position(|part| part == b"a+0x233").expect("a name");
        bytes[at + 1] = 0x1b;
        let read = decode(&bytes, ROOM).expect("whole");
        let names: Vec<&str> = read.stacks.iter().flat_map(|stack| &stack.functions).map(|at| &*at.name).collect();
        assert!(names.contains(&"a?0x233"), "{names:?}");
        assert!(decode(&bytes, 200).is_none());
    }

    #[test]
    fn numbers_are_written_in_groups_of_seven_bits() {
        let mut message = Message::default();
        message.number(1, 300).number(2, 0).number(15, (-1_i64).cast_unsigned());
        assert_eq!(message.0[..3], [8, 0xac, 2]);
        assert_eq!(message.0.len(), 3 + 1 + 10);
    }
}
