//! Evidence that a visitor and an id belong together: its weight, its source, and how an id links visitors.

use serde::{Deserialize, Serialize};

/// A weight of evidence in thousandths: 1 to 1,000, where 1,000 is a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EvidenceWeight(pub u16);

impl EvidenceWeight {
    /// The weight of a login, which is certain.
    pub const LOGIN: Self = Self(1_000);
    /// The weight (0.9) of an id that a page names without a proof, as anyone could. If the tenant's threshold is not
    /// higher, it links visitors for decisions only: it gives access to no data and widens no erasure.
    pub const CLAIM: Self = Self(900);
    /// The greatest weight without a login.
    pub const UNSURE: Self = Self(999);
    /// The weight of a claim that anyone can make. It is stored and never links, whatever the threshold is.
    pub const NOTHING: Self = Self(0);

    /// Rounds a weight over 0 and up to 1 to thousandths, at least one; `None` outside this range.
    #[must_use]
    pub fn new(weight: f64) -> Option<Self> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within its bounds")]
        (weight > 0.0 && weight <= 1.0).then(|| Self((weight * 1_000.0).round().max(1.0) as u16))
    }

    /// The weight as a number from 0 to 1.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }
}

/// The source of evidence that is not a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceSource {
    /// A list that matches visitors with ids or with one another.
    Match,
    /// A shared household: an address or a network.
    Household,
    /// The same device or a similar one.
    Device,
    /// The prediction of a model.
    Model,
}

impl EvidenceSource {
    /// All sources.
    pub const ALL: [Self; 4] = [Self::Match, Self::Household, Self::Device, Self::Model];

    /// Its permanent number in facts and stores. Smaller numbers are those of logins and of pages' claims.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Match => 3,
            Self::Household => 4,
            Self::Device => 5,
            Self::Model => 6,
        }
    }

    /// Its permanent name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::Household => "household",
            Self::Device => "device",
            Self::Model => "model",
        }
    }

    /// The source with this number.
    #[must_use]
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.code() == code)
    }
}

/// How an id links the visitors that were seen with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkClass {
    /// It links all of them, except visitors whose effective unique id is another one.
    Unique,
    /// It links all of them, unless that would join two unique ids.
    #[default]
    Shared,
    /// It links none of them: it was seen with more visitors than one person can have.
    OversizedGroup,
}
