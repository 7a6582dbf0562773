//! Whole numbers of a JSON body, in any JSON notation: 5, 5.0 and 5e0 are one number, because clients in some languages
//! write every number as a float.

use std::fmt;
use std::marker::PhantomData;

use causeway_shared::base::number::whole_of;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use serde_json::Value;

/// A field that is a whole number within the range of `T`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct WholeNumber<T>(pub(crate) T);

/// The whole number that a JSON value is; `None` for any other value, and outside the range of `i64`.
pub(crate) fn read_whole(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| whole_of(value.as_f64().filter(|_| value.is_f64())?))
}

impl<'de, T: TryFrom<u64> + TryFrom<i64>> Deserialize<'de> for WholeNumber<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(WholeVisitor(PhantomData)).map(Self)
    }
}

struct WholeVisitor<T>(PhantomData<T>);

impl<T: TryFrom<u64> + TryFrom<i64>> Visitor<'_> for WholeVisitor<T> {
    type Value = T;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a whole number within its range")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        T::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        let whole = whole_of(number).and_then(|whole| T::try_from(whole).ok());
        whole.ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: TryFrom<u64> + TryFrom<i64>>(text: &str) -> Option<T> {
        serde_json::from_str(text).ok().map(|WholeNumber(number)| number)
    }

    #[test]
    fn a_float_that_is_whole_and_exact_is_that_number() {
        for text in ["5", "5.0", "5e0", "50e-1"] {
            assert_eq!((read::<u32>(text), read::<i32>(text)), (Some(5), Some(5)), "{text}");
        }
        assert_eq!(read("1893456000000.0"), Some(1_893_456_000_000_u64));
        assert_eq!([read("-7.0"), read("-0.0")], [Some(-7_i32), Some(0)]);
        assert_eq!(read("9007199254740992.0"), Some(1_u64 << 53));
        assert_eq!(read("18446744073709551615"), Some(u64::MAX), "digits alone are exact");
    }

    #[test]
    fn a_fraction_a_float_beyond_the_exact_ones_and_a_number_out_of_range_are_none() {
        for text in ["5.5", "9007199254740994.0", "1e300", "\"5\"", "null", "-1", "-1.0", "4294967296", "4294967296.0"]
        {
            assert_eq!(read::<u32>(text), None, "{text}");
        }
    }
}
