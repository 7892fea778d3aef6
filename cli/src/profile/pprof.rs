//! # pprof's format
//!
//! A gzip-ed protocol buffer, written by hand: field numbers are those of pprof's `profile.proto`. Four values a
//! sample: objects and bytes allocated, objects and bytes in use (shown first).

use super::read::{Amount, Profile};
use super::symbols::{Function, Symbols};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::HashMap;
use std::io::{self, Write};

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
        let frames = super::callers(&stack.frames, symbols);
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
    use std::io::Read as _;

    /// A reader of what is needed here: field, number or bytes.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = varint(&mut bytes);
            match key & 7 {
                0 => found.push((key >> 3, value, &bytes[..0])),
                2 => {
                    let (part, rest) = bytes.split_at(value as usize);
                    found.push((key >> 3, 0, part));
                    bytes = rest;
                }
                other => panic!("wire type {other}"),
            }
        }
        found
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
    fn numbers_are_written_in_groups_of_seven_bits() {
        let mut message = Message::default();
        message.number(1, 300).number(2, 0).number(15, (-1_i64).cast_unsigned());
        assert_eq!(message.0[..3], [8, 0xac, 2]);
        assert_eq!(message.0.len(), 3 + 1 + 10);
    }
}
