//! Missing parts of a visitor's or a person's data. A missing part is unknown, not absent
//! (docs/adr/0004-unknown-is-not-absent.md).

/// A set of missing parts. The empty set means that everything is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MissingParts(u8);

impl MissingParts {
    /// Everything is known.
    pub const NONE: Self = Self(0);
    /// Some attributes.
    pub const ATTRIBUTES: Self = Self(1);
    /// Some segments.
    pub const SEGMENTS: Self = Self(2);
    /// Some actions.
    pub const ACTIONS: Self = Self(4);
    /// The times of some events.
    pub const EVENTS: Self = Self(8);
    /// Some visitors of the person, or all data of one of them.
    pub const MEMBERS: Self = Self(16);
    /// Everything.
    pub const ALL: Self = Self(31);

    const NAMED: [(Self, &'static str); 5] = [
        (Self::ATTRIBUTES, "attributes"),
        (Self::SEGMENTS, "segments"),
        (Self::ACTIONS, "actions"),
        (Self::EVENTS, "events"),
        (Self::MEMBERS, "members"),
    ];

    /// The parts that either set has.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These parts if a condition holds, otherwise none.
    #[must_use]
    pub const fn when(self, holds: bool) -> Self {
        if holds { self } else { Self::NONE }
    }

    /// Whether the sets have a part in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether nothing is missing.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of parts in the set.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The parts' names in API answers, in a fixed order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMED.into_iter().filter(move |(part, _)| self.overlaps(*part)).map(|(_, name)| name)
    }

    /// The set as bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set from bits; unknown bits are dropped.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }
}
