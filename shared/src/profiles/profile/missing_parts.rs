//! Which parts of a visitor's or of a person's data a reader does not have. What is missing is unknown, not absent
//! (docs/adr/0004-unknown-is-not-absent.md).

/// A set of parts of what is stored. The empty set says that everything is known.
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
    /// Some of the person's visitors, or everything of one of them.
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

    /// These parts where a condition holds, else none.
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

    /// How many parts there are.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The parts' names in answers, in a fixed order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMED.into_iter().filter(move |(part, _)| self.overlaps(*part)).map(|(_, name)| name)
    }

    /// As the bits of a number.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// From the bits of a number; bits that no part has are dropped.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }
}
