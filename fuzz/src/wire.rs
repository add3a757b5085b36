//! Helpers for the `toolward-wire` targets: splitting streams, a strict JSON reference parser, and
//! comparison of edited bytes.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use toolward_wire::{MAX_DEPTH, MAX_MEMBERS};

/// Splits off the first byte, which selects an option.
pub fn choice(data: &[u8]) -> (u8, &[u8]) {
    data.split_first().map_or((0, data), |(first, rest)| (*first, rest))
}

/// Splits bytes into pieces whose lengths depend on `seed`: a single piece, single bytes, or in
/// between.
pub fn pieces(mut bytes: &[u8], seed: u8) -> Vec<&[u8]> {
    let max_length = match seed % 4 {
        0 => return vec![bytes],
        1 => 1,
        2 => 4,
        _ => 64,
    };
    let mut state = u32::from(seed) + 1;
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length = ((state >> 16) as usize % max_length + 1).min(bytes.len());
        let (piece, rest) = bytes.split_at(length);
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// Parses JSON with serde_json, and rejects duplicate keys, deep nesting and large objects.
pub fn strict(bytes: &[u8]) -> Option<Value> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { depth: 0 }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(value)
}

/// Whether the bytes are JSON, regardless of the content of strings and numbers.
pub fn well_formed(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok() && serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

/// Deserializes a value strictly.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn inside<E: Error>(self) -> Result<Strict, E> {
        let depth = self.depth + 1;
        if depth > MAX_DEPTH { Err(E::custom("deep")) } else { Ok(Strict { depth }) }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(inside)? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if map.insert(key, members.next_value_seed(inside)?).is_some() {
                return Err(A::Error::custom("duplicate key"));
            }
        }
        if map.len() > MAX_MEMBERS {
            return Err(A::Error::custom("wide"));
        }
        Ok(map.into())
    }
}

/// The length of the common prefix of two texts, and of the common suffix of the rest.
pub fn shared(a: &[u8], b: &[u8]) -> (usize, usize) {
    let start = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let ends = a[start..].iter().rev().zip(b[start..].iter().rev());
    (start, ends.take_while(|(a, b)| a == b).count())
}

/// The offsets of `part`, a slice of `whole`.
pub fn offsets(whole: &[u8], part: &[u8]) -> (usize, usize) {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    assert_eq!(&whole[start..start + part.len()], part);
    (start, start + part.len())
}
