//! JSON numbers that must be exact: integers in float form, and amounts of money.

use serde_json::Value;

use crate::base::ids::Micros;

/// Up to 2⁵³, a float stands for exactly one integer.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Tolerance for rounding noise in an amount of micros: 8.2 times a million is 8199999.999999999.
const NOISE: f64 = 0.001;

/// The integer that a float equals; `None` for a fraction and beyond 2⁵³.
#[must_use]
pub fn whole_of(number: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and within 2⁵³")]
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

/// An amount in micros, from 0 to `most`, from a number in units of `unit` micros, rounded once. A number of micros
/// (`unit` 1) must be an integer, except for rounding noise.
#[must_use]
pub fn amount_of(value: &Value, unit: f64, most: Micros) -> Option<Micros> {
    let whole = value.as_i64().filter(|_| unit == 1.0);
    let rounded = || {
        let amount = value.as_f64()? * unit;
        let is_whole = unit != 1.0 || (amount - amount.round()).abs() <= NOISE;
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, and the bound follows")]
        (amount.is_finite() && is_whole).then_some(amount.round() as i64)
    };
    whole.or_else(rounded).map(Micros::new).filter(|amount| (Micros::ZERO..=most).contains(amount))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Micros, Value, amount_of, whole_of};

    fn amount(value: Value, unit: f64, most: i64) -> Option<i64> {
        amount_of(&value, unit, Micros::new(most)).map(Micros::get)
    }

    #[test]
    fn an_amount_is_rounded_once_and_a_fraction_of_a_micro_is_none() {
        assert_eq!(amount(json!(8.2), 1e6, 10_000_000), Some(8_200_000));
        assert_eq!(amount(json!(8_199_999.999_999_999), 1.0, 10_000_000), Some(8_200_000));
        assert_eq!(amount(json!(0.5), 1.0, 10), None);
        assert_eq!([amount(json!(-1), 1.0, 10), amount(json!(11), 1.0, 10)], [None, None]);
        assert_eq!(amount(json!("7"), 1.0, 10), None);
    }

    #[test]
    fn a_float_is_a_whole_number_up_to_two_to_the_53() {
        assert_eq!([whole_of(5.0), whole_of(-7.0), whole_of(5.5)], [Some(5), Some(-7), None]);
        assert_eq!([whole_of(9_007_199_254_740_992.0), whole_of(9_007_199_254_740_994.0)], [Some(1 << 53), None]);
    }
}
