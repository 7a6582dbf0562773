//! Evidence that a visitor and an id belong together: its weight, its source, and how an id links visitors.

use serde::{Deserialize, Serialize};

/// A weight of evidence in thousandths: 1 to 1,000; 1,000 is a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EvidenceWeight(pub u16);

impl EvidenceWeight {
    /// A login: certain.
    pub const LOGIN: Self = Self(1_000);
    /// An id that a page names without a proof, as anybody can: 0.9. It links visitors where the tenant's threshold is not
    /// higher, for decisions alone: it gives access to no data and widens no erasure.
    pub const CLAIM: Self = Self(900);
    /// The most that anything else comes to.
    pub const UNSURE: Self = Self(999);
    /// What anyone may say: kept, and links nothing whatever the threshold.
    pub const NOTHING: Self = Self(0);

    /// A weight over 0 and up to 1, to the nearest thousandth and one at least.
    #[must_use]
    pub fn new(weight: f64) -> Option<Self> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within its bounds")]
        (weight > 0.0 && weight <= 1.0).then(|| Self((weight * 1_000.0).round().max(1.0) as u16))
    }

    /// As a number from 0 to 1.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }
}

/// Where evidence comes from that is not a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceSource {
    /// Somebody's list of who is who.
    Match,
    /// They share a household: an address, a network.
    Household,
    /// They are one device, or alike.
    Device,
    /// A model says so.
    Model,
}

impl EvidenceSource {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Match, Self::Household, Self::Device, Self::Model];

    /// Its number in facts and stores, behind those of logins and of what pages say. For ever.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Match => 3,
            Self::Household => 4,
            Self::Device => 5,
            Self::Model => 6,
        }
    }

    /// A stable name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::Household => "household",
            Self::Device => "device",
            Self::Model => "model",
        }
    }

    /// The source of a number.
    #[must_use]
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.code() == code)
    }
}

/// How an id links the visitors that were seen with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkClass {
    /// All of them: they are one person's, and who holds another unique id is nobody's of these.
    Unique,
    /// All of them, as long as that brings no two unique ids together.
    #[default]
    Shared,
    /// None: it was seen with more visitors than one person has.
    Crowded,
}
