//! Amounts of money.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An amount of money in millionths of the catalogue's currency unit. Its JSON form is the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(transparent)]
pub struct Micros(i64);

impl Micros {
    /// No money.
    pub const ZERO: Self = Self(0);

    /// An amount from its number of millionths.
    #[must_use]
    pub const fn new(millionths: i64) -> Self {
        Self(millionths)
    }

    /// The number of millionths.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The number of millionths; 0 for a negative amount.
    #[must_use]
    pub fn unsigned(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }

    /// The sum, at most `i64::MAX` millionths.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The sum modulo 2⁶⁴: adding amounts in any order, and taking them back, gives the same sum.
    #[must_use]
    pub const fn wrapping_add(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// The difference, at least `i64::MIN` millionths.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The difference modulo 2⁶⁴.
    #[must_use]
    pub const fn wrapping_sub(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }

    /// `self × times ÷ by`, rounded towards zero; at most `i64::MAX` millionths.
    #[must_use]
    pub fn part(self, times: i64, by: i64) -> Self {
        // The common case avoids a division of 128 bits, which WebAssembly and most processors lack.
        if let Some(product) = self.0.checked_mul(times) {
            return Self(product / by);
        }
        Self(i64::try_from(i128::from(self.0) * i128::from(times) / i128::from(by)).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
