//! Packed attributes, read without being unpacked. An empty map has no bytes.
//!
//! All numbers are LEB128. The parts in order: the number of rows; the bytes of all rows, with a length prefix; the
//! stamps. A row is the number of tokens skipped since the previous row, then the value with a length prefix; a removed
//! attribute has length 0. The stamps are their number, then each distinct stamp in order, as the difference of its
//! time to the previous one and its order. With more than one stamp, the index of its stamp follows for each row.
//!
//! A value is the code of its kind, then: 0 or 1; a signed number; the eight bytes of a float; a text up to the end; a
//! day as a signed number; or texts in order, each with a length prefix, up to the end.

use std::collections::BTreeSet;

use super::{AttributeMap, AttributeValue, FiniteNumber, NameToken, ValueKind};
use crate::base::limits;
use crate::base::packed::{self, PackedReader};
use crate::facts::segments::WriteStamp;

/// Largest number of bytes outside rows and stamps: the two counts (at most 256) and the length of all rows.
pub(super) const FRAME: usize = 2 + 10 + 2;
/// Largest number of bytes of a row without its value: the skipped tokens, the value's length, the index of its stamp.
pub(super) const ROW: usize = 3 + 3 + 2;
/// Largest number of bytes of a stamp.
pub(super) const STAMP: usize = 10 + 5;

impl AttributeValue {
    /// Packed form: equal values give equal bytes.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let mut to = vec![self.kind().code()];
        match self {
            Self::Bool(yes) => to.push((*yes).into()),
            Self::Integer(whole) => packed::put_signed(&mut to, *whole),
            Self::Float(finite) => to.extend(finite.get().to_bits().to_be_bytes()),
            Self::String(text) => to.extend_from_slice(text.as_bytes()),
            Self::Date(days) => packed::put_signed(&mut to, (*days).into()),
            Self::Strings(all) => all.iter().for_each(|text| packed::put_row(&mut to, text.as_bytes())),
        }
        to
    }

    /// Reads a packed value; `None` unless the bytes are those of [`AttributeValue::pack`] for a value within the
    /// bounds.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (code, rest) = bytes.split_first()?;
        let mut from = PackedReader(rest);
        let value = match ValueKind::from_code(*code)? {
            ValueKind::Bool => Self::Bool(from.count(1)? == 1),
            ValueKind::Integer => Self::Integer(from.signed()?),
            ValueKind::Float => Self::Float(float(from.eight()?)?),
            ValueKind::String => Self::String(text(from.take(rest.len())?)?),
            ValueKind::Date => Self::Date(i32::try_from(from.signed()?).ok()?),
            ValueKind::Strings => Self::Strings(strings(&mut from)?),
        };
        (from.is_empty() && value.check().is_ok()).then_some(value)
    }
}

fn float(bits: u64) -> Option<FiniteNumber> {
    FiniteNumber::new(f64::from_bits(bits)).filter(|finite| finite.get().to_bits() == bits)
}

fn text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (text.len() <= limits::ATTRIBUTE_BYTES).then(|| text.to_owned())
}

fn strings(from: &mut PackedReader<'_>) -> Option<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    while !from.is_empty() {
        let text = text(from.row()?)?;
        if all.len() == limits::ATTRIBUTE_STRINGS || all.last().is_some_and(|last| *last >= text) {
            return None;
        }
        all.insert(text);
    }
    Some(all)
}

impl AttributeMap {
    /// Packed form: equal maps give equal bytes, and an empty map gives none.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let mut to = Vec::new();
        if self.0.is_empty() {
            return to;
        }
        let mut rows = Vec::new();
        let mut next = 0;
        for (token, (_, value)) in &self.0 {
            let token = u64::from(token.0);
            packed::put(&mut rows, token - next);
            packed::put_row(&mut rows, &value.as_ref().map(AttributeValue::pack).unwrap_or_default());
            next = token + 1;
        }
        packed::put(&mut to, self.0.len() as u64);
        packed::put_row(&mut to, &rows);
        self.put_stamps(&mut to);
        to
    }

    fn put_stamps(&self, to: &mut Vec<u8>) {
        let mut stamps: Vec<WriteStamp> = self.0.values().map(|(stamp, _)| *stamp).collect();
        stamps.sort_unstable();
        stamps.dedup();
        packed::put(to, stamps.len() as u64);
        let mut before = 0;
        for stamp in &stamps {
            packed::put(to, stamp.at - before);
            packed::put(to, stamp.order);
            before = stamp.at;
        }
        if stamps.len() > 1 {
            for (stamp, _) in self.0.values() {
                packed::put(to, stamps.binary_search(stamp).unwrap_or_default() as u64);
            }
        }
    }
}

/// Packed attributes, borrowed from their bytes.
#[derive(Debug, Clone, Copy)]
pub struct PackedAttributes<'a> {
    count: usize,
    rows: &'a [u8],
    stamps: PackedReader<'a>,
}

impl<'a> PackedAttributes<'a> {
    /// Reads packed bytes; `None` if they are truncated or over a bound. Single rows are checked when they are read.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut from = PackedReader(bytes);
        if from.is_empty() {
            return Some(Self { count: 0, rows: bytes, stamps: from });
        }
        let count = from.count(limits::ATTRIBUTES).filter(|count| *count > 0)?;
        let rows = from.row()?;
        Some(Self { count, rows, stamps: from })
    }

    /// Value of an attribute; `None` if it is absent, removed or unreadable. Only this value is decoded.
    #[must_use]
    pub fn get(&self, token: NameToken) -> Option<AttributeValue> {
        let (at, value) = self.rows().find(|(at, _)| *at >= token)?;
        if at == token { AttributeValue::read(value) } else { None }
    }

    /// The attributes with a readable value, in order of their tokens.
    pub fn iter(self) -> impl Iterator<Item = (NameToken, AttributeValue)> + 'a {
        self.rows().filter_map(|(token, value)| Some((token, AttributeValue::read(value)?)))
    }

    /// Tokens of all attributes ever written, removed ones included, in order.
    pub fn tokens(self) -> impl Iterator<Item = NameToken> + 'a {
        self.rows().map(|(token, _)| token)
    }

    /// Tokens and packed values, up to the first malformed row.
    fn rows(self) -> impl Iterator<Item = (NameToken, &'a [u8])> + 'a {
        let mut from = PackedReader(self.rows);
        let mut next = 0;
        (0..self.count).map_while(move |_| row(&mut from, &mut next))
    }

    /// The map with all stamps and removals; `None` unless the bytes are those of [`AttributeMap::pack`].
    #[must_use]
    pub fn to_map(&self) -> Option<AttributeMap> {
        let mut from = PackedReader(self.rows);
        let mut next = 0;
        let stamps = self.read_stamps()?;
        let mut map = AttributeMap::default();
        for stamp in stamps {
            let (token, value) = row(&mut from, &mut next)?;
            let value = if value.is_empty() { None } else { Some(AttributeValue::read(value)?) };
            map.0.insert(token, (stamp, value));
        }
        from.is_empty().then_some(map)
    }

    /// The stamp of each row.
    fn read_stamps(&self) -> Option<Vec<WriteStamp>> {
        let mut from = self.stamps;
        if self.count == 0 {
            return Some(Vec::new());
        }
        let mut at = 0u64;
        let stamps = (0..from.count(self.count)?).map(|_| {
            at = at.checked_add(from.number()?)?;
            Some(WriteStamp { at, order: from.number()? })
        });
        let stamps: Vec<WriteStamp> = stamps.collect::<Option<_>>()?;
        let mut index = || if stamps.len() == 1 { Some(0) } else { from.count(self.count) };
        let of_rows = (0..self.count).map(|_| stamps.get(index()?).copied());
        let of_rows: Vec<WriteStamp> = of_rows.collect::<Option<_>>()?;
        // Each stamp occurs once, in order, and belongs to at least one row.
        let used: BTreeSet<WriteStamp> = of_rows.iter().copied().collect();
        (used.iter().eq(&stamps) && from.is_empty()).then_some(of_rows)
    }
}

/// Next token and its packed value.
fn row<'a>(from: &mut PackedReader<'a>, next: &mut usize) -> Option<(NameToken, &'a [u8])> {
    let token = u16::try_from(from.count(u16::MAX.into())? + *next).ok()?;
    *next = usize::from(token) + 1;
    Some((NameToken(token), from.row()?))
}
