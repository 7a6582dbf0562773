//! Packed bytes, for snapshot parts with dozens or thousands of entries, where CBOR's framing would exceed the content.
//! Ids are stored as they are. Numbers are LEB128 (DWARF 5, 7.6) in canonical form. A row follows its length.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::base::ids::VisitorId;

/// Writes a number: seven bits per byte, lowest first.
pub fn put(to: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return to.push(low);
        }
        to.push(low | 0x80);
    }
}

/// Writes a signed number with its sign in the lowest bit.
pub fn put_signed(to: &mut Vec<u8>, number: i64) {
    put(to, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

/// Writes the length of a row, then its bytes.
pub fn put_row(to: &mut Vec<u8>, row: &[u8]) {
    put(to, row.len() as u64);
    to.extend_from_slice(row);
}

/// A reader of packed bytes from the front. Each method returns `None` if the bytes end early or are malformed.
#[derive(Debug, Clone, Copy, Default)]
pub struct PackedReader<'a>(pub &'a [u8]);

impl<'a> PackedReader<'a> {
    /// Whether all bytes are read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A number.
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for (i, byte) in self.0.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            number |= bits << (7 * i);
            if byte & 0x80 == 0 {
                // The canonical form only: no bits beyond the 64th and no trailing zero bytes.
                let whole = number >> (7 * i) == bits && (bits != 0 || i == 0);
                self.0 = self.0.get(i + 1..)?;
                return whole.then_some(number);
            }
        }
        None
    }

    /// A signed number.
    pub fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    /// A number of entries, at most `most`.
    pub fn count(&mut self, most: usize) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|n| *n <= most)
    }

    /// A number from eight bytes, most significant first. Used for ids, which have no small values.
    pub fn eight(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*bytes))
    }

    /// A visitor id of 16 bytes.
    pub fn visitor(&mut self) -> Option<VisitorId> {
        let (id, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        VisitorId::from_bytes(*id).ok()
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// The bytes of a row, after its length.
    pub fn row(&mut self) -> Option<&'a [u8]> {
        let length = self.count(self.0.len())?;
        self.take(length)
    }
}

/// Shared bytes: each row of a snapshot is a range of the snapshot's bytes. A request creates and drops dozens, so
/// there is no call through a vtable, unlike in `bytes::Bytes`.
#[derive(Clone)]
pub struct SharedBytes {
    all: Arc<Vec<u8>>,
    part: Range<u32>,
}

impl SharedBytes {
    /// The range of these bytes that `there` occupies in memory; empty if `there` is not inside them.
    #[must_use]
    pub fn part(&self, there: &[u8]) -> Self {
        let from = there.as_ptr().addr().wrapping_sub(self.all.as_ptr().addr());
        let range = |from: usize| Some(u32::try_from(from).ok()?..u32::try_from(from.checked_add(there.len())?).ok()?);
        let part = range(from).filter(|part| self.part.start <= part.start && part.end <= self.part.end);
        Self { all: Arc::clone(&self.all), part: part.unwrap_or_default() }
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(all: Vec<u8>) -> Self {
        let part = 0..u32::try_from(all.len()).unwrap_or_default();
        Self { all: Arc::new(all), part }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let Range { start, end } = self.part;
        self.all.get(start as usize..end as usize).unwrap_or_default()
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

impl std::fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_form() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            let mut packed = PackedReader(&bytes);
            assert_eq!((packed.number(), packed.is_empty()), (Some(number), true));
        }
        for bad in [&[0x80][..], &[0x80, 0], &[0xff; 11], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]] {
            assert_eq!(PackedReader(bad).number(), None, "{bad:?}");
        }
    }

    #[test]
    fn signed_numbers_go_both_ways() {
        for number in [0, -1, 1, i64::MIN, i64::MAX] {
            let mut bytes = Vec::new();
            put_signed(&mut bytes, number);
            assert_eq!(PackedReader(&bytes).signed(), Some(number));
        }
    }

    #[test]
    fn a_part_is_what_lies_there_and_nothing_of_others() {
        let all = SharedBytes::from(vec![1, 2, 3, 4, 5]);
        let middle = all.part(&all[1..4]);
        assert_eq!((&*middle, &*middle.part(&all[2..3]), &*all.part(&all[5..])), (&[2, 3, 4][..], &[3][..], &[][..]));
        assert_eq!((&*middle.part(&all[0..2]), &*middle.part(&all[3..5])), (&[][..], &[][..]), "not among them");
        assert_eq!(&*all.part(&[2, 3, 4]), &[] as &[u8], "the same bytes elsewhere");
        assert_eq!(middle, SharedBytes::from(vec![2, 3, 4]));
    }
}
