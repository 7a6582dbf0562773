//! CBOR by ciborium, with a check of hostile bytes before it.
//!
//! ciborium recurses into nested values, and serde allocates for lists. [`decode`] bounds both. It first walks over the
//! heads of all items, without recursion or allocation. It refuses bytes that nest too deep, have too many items,
//! declare more than is present, or continue after the end.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::WireError;

/// The key of a form's number, which is the first key of the form.
const NUMBER_KEY: &[u8] = b"f";
/// Deepest nesting of any form.
const MOST_LEVELS: usize = 48;
/// Size of ciborium's buffer for a key or a short text. Longer texts are read in pieces; a longer key is refused.
const SCRATCH_BYTES: usize = 256;

/// Bounds of a form's bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct FormBounds {
    /// Most bytes.
    pub bytes: usize,
    /// Most items: values of all levels, including keys. It bounds allocation.
    pub items: usize,
    /// Most nested lists and maps, at most [`MOST_LEVELS`].
    pub levels: usize,
}

/// Encodes a form.
pub(super) fn encode<T: Serialize>(form: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    let written = ciborium::into_writer(form, &mut bytes);
    // Neither a write to a vector nor a form's `Serialize` can fail.
    debug_assert!(written.is_ok(), "{written:?}");
    bytes
}

/// Decodes a form with this number.
///
/// # Errors
/// [`WireError::TooLong`], [`WireError::Range`] and [`WireError::Malformed`] for bytes outside `bounds` or the form;
/// [`WireError::UnknownForm`] for another number.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8], number: u8, bounds: FormBounds) -> Result<T, WireError> {
    check(bytes, bounds)?;
    if form_number(bytes)? != u64::from(number) {
        return Err(WireError::UnknownForm);
    }
    read(bytes)
}

/// Decodes a part that another form contains as a byte string, without a number of its own.
///
/// # Errors
/// As for [`decode`], except [`WireError::UnknownForm`].
pub(super) fn decode_part<T: DeserializeOwned>(bytes: &[u8], bounds: FormBounds) -> Result<T, WireError> {
    check(bytes, bounds)?;
    read(bytes)
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    let mut scratch = [0; SCRATCH_BYTES];
    ciborium::de::from_reader_with_buffer(bytes, &mut scratch).map_err(|_| WireError::Malformed)
}

/// The form's number, which is the value of its first key.
fn form_number(bytes: &[u8]) -> Result<u64, WireError> {
    let mut heads = ItemReader(bytes);
    match (heads.next()?, heads.next()?, heads.next()?) {
        (ItemHead::Nested(_), ItemHead::Text(NUMBER_KEY), ItemHead::Number(number)) => Ok(number),
        _ => Err(WireError::Malformed),
    }
}

/// Checks that bytes are exactly one value within its bounds.
fn check(bytes: &[u8], bounds: FormBounds) -> Result<(), WireError> {
    if bytes.len() > bounds.bytes {
        return Err(WireError::TooLong);
    }
    let mut heads = ItemReader(bytes);
    // The number of missing items of each open list or map. The first entry is for the value itself.
    let mut awaited = [0_u64; MOST_LEVELS + 1];
    let (mut level, mut items) = (0, 0);
    if let Some(first) = awaited.first_mut() {
        *first = 1;
    }
    loop {
        let Some(here) = awaited.get_mut(level) else { return Err(WireError::Range) };
        if *here > 0 {
            *here -= 1;
            items += 1;
            if items > bounds.items {
                return Err(WireError::Range);
            }
            if let ItemHead::Nested(count) = heads.next()? {
                level += 1;
                let inner = awaited.get_mut(level).filter(|_| level <= bounds.levels);
                *inner.ok_or(WireError::Range)? = count;
            }
        } else if level > 0 {
            level -= 1;
        } else {
            return if heads.0.is_empty() { Ok(()) } else { Err(WireError::Malformed) };
        }
    }
}

/// The head of an item.
enum ItemHead<'a> {
    /// A non-negative integer.
    Number(u64),
    /// A text, which is skipped.
    Text(&'a [u8]),
    /// A list or a map with this number of items; a key and its value count as two.
    Nested(u64),
    /// Any other item, which is skipped.
    Other,
}

/// A reader of items from the front.
struct ItemReader<'a>(&'a [u8]);

impl<'a> ItemReader<'a> {
    fn next(&mut self) -> Result<ItemHead<'a>, WireError> {
        let [first] = self.take()?;
        let argument = match first & 0x1f {
            small @ 0..24 => u64::from(small),
            24 => u64::from(u8::from_be_bytes(self.take()?)),
            25 => u64::from(u16::from_be_bytes(self.take()?)),
            26 => u64::from(u32::from_be_bytes(self.take()?)),
            27 => u64::from_be_bytes(self.take()?),
            // Reserved, or an indefinite length.
            _ => return Err(WireError::Malformed),
        };
        match (first >> 5, first & 0x1f) {
            (0, _) => Ok(ItemHead::Number(argument)),
            (1, _) => Ok(ItemHead::Other),
            (2, _) => self.pass(argument).map(|_| ItemHead::Other),
            (3, _) => self.pass(argument).map(ItemHead::Text),
            (4, _) => self.nested(argument),
            (5, _) => self.nested(argument.checked_mul(2).ok_or(WireError::Malformed)?),
            // False, true and null; floats, which a later release may write.
            (7, 20..=22 | 25..=27) => Ok(ItemHead::Other),
            // Tags, and simple values that no form uses.
            _ => Err(WireError::Malformed),
        }
    }

    /// The head of a list or map. Each item takes at least one byte.
    fn nested(&self, count: u64) -> Result<ItemHead<'a>, WireError> {
        if count <= self.0.len() as u64 { Ok(ItemHead::Nested(count)) } else { Err(WireError::Malformed) }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(WireError::Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn pass(&mut self, length: u64) -> Result<&'a [u8], WireError> {
        let length = usize::try_from(length).map_err(|_| WireError::Malformed)?;
        let (passed, rest) = self.0.split_at_checked(length).ok_or(WireError::Malformed)?;
        self.0 = rest;
        Ok(passed)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use ciborium::Value;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: FormBounds = FormBounds { bytes: 4_096, items: 1_000, levels: 8 };

    /// A value of types that forms use, nested up to `levels`.
    fn value(levels: u32) -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(|number| Value::Integer(number.into())),
            vec(any::<u8>(), 0..300).prop_map(Value::Bytes),
            "[a-z]{0,30}".prop_map(Value::Text),
            any::<bool>().prop_map(Value::Bool),
            any::<f64>().prop_map(Value::Float),
            Just(Value::Null),
        ];
        leaf.prop_recursive(levels, 200, 6, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..6).prop_map(Value::Array),
                vec(("[a-z]", inner), 0..6).prop_map(|entries| {
                    Value::Map(entries.into_iter().map(|(key, value)| (Value::Text(key), value)).collect())
                }),
            ]
        })
    }

    fn items(value: &Value) -> usize {
        1 + match value {
            Value::Array(all) => all.iter().map(items).sum(),
            Value::Map(all) => all.iter().map(|(key, value)| items(key) + items(value)).sum(),
            _ => 0,
        }
    }

    fn levels(value: &Value) -> usize {
        match value {
            Value::Array(all) => 1 + all.iter().map(levels).max().unwrap_or_default(),
            Value::Map(all) => 1 + all.iter().map(|(_, value)| levels(value)).max().unwrap_or_default(),
            _ => 0,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_bound_holds_exactly_and_every_cut_is_refused(value in value(6), cut in any::<prop::sample::Index>()) {
            let bytes = encode(&value);
            let exact = FormBounds { bytes: bytes.len(), items: items(&value), levels: levels(&value) };
            prop_assert_eq!(check(&bytes, exact), Ok(()));
            prop_assert_eq!(check(&bytes, FormBounds { bytes: exact.bytes - 1, ..exact }), Err(WireError::TooLong));
            prop_assert_eq!(check(&bytes, FormBounds { items: exact.items - 1, ..exact }), Err(WireError::Range));
            if let Some(levels) = exact.levels.checked_sub(1) {
                prop_assert_eq!(check(&bytes, FormBounds { levels, ..exact }), Err(WireError::Range));
            }
            let wide = FormBounds { bytes: usize::MAX, ..exact };
            prop_assert_eq!(check(&bytes[..cut.index(bytes.len())], wide), Err(WireError::Malformed));
            prop_assert_eq!(check(&[&bytes[..], &[0xf6]].concat(), wide), Err(WireError::Malformed));
        }

        /// ciborium accepts what the check accepts within the same bounds, except for texts that are not UTF-8.
        #[test]
        fn what_is_within_the_bounds_is_one_value(bytes in vec(any::<u8>(), 0..40)) {
            if check(&bytes, BOUNDS).is_ok() {
                let mut rest = bytes.as_slice();
                if let Ok(read) = ciborium::from_reader::<Value, _>(&mut rest) {
                    prop_assert!(rest.is_empty() && levels(&read) <= BOUNDS.levels && items(&read) <= BOUNDS.items);
                }
            }
        }
    }

    #[test]
    fn what_only_claims_to_be_there_is_refused() {
        for claim in [0x9b, 0xbb, 0x5b, 0x7b] {
            for length in [1, 100, 1 << 31, u64::MAX / 2 + 1, u64::MAX] {
                let bytes = [&[claim][..], &length.to_be_bytes()].concat();
                assert_eq!(check(&bytes, BOUNDS), Err(WireError::Malformed), "{claim:x} {length}");
            }
        }
        let deep = vec![0x81; 4_096];
        assert_eq!(check(&deep, BOUNDS), Err(WireError::Range));
        assert_eq!(check(&deep, FormBounds { levels: usize::MAX, items: usize::MAX, ..BOUNDS }), Err(WireError::Range));
    }

    #[test]
    fn a_number_of_a_form_is_its_first_key() {
        assert_eq!(form_number(b"\xa1\x61f\x01").unwrap(), 1);
        assert_eq!(form_number(b"\xa2\x61f\x18\xc8\x61a\x01").unwrap(), 200);
        for bad in
            [&b"\xa1\x61g\x01"[..], b"\x81\x01", b"\xa1\x41f\x01", b"\xa1\x61f\x20", b"", b"\xa2\x61a\x01\x61f\x01"]
        {
            assert_eq!(form_number(bad), Err(WireError::Malformed), "{bad:x?}");
        }
    }
}
