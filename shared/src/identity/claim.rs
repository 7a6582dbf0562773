//! An alternate id as one request claims it.

use super::members::same_id;
use crate::base::ids::{AltHash, AlternateId};

/// An alternate id that a request brings; one of a unique kind only with its proof, or where the tenant trusts its pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdClaim {
    /// The id under the written key.
    pub id: AlternateId,
    /// The same under the other readable keys.
    pub also: Vec<AltHash>,
    /// Whether its kind is unique.
    pub unique: bool,
    /// Whether the request proves it.
    pub proven: bool,
}

impl IdClaim {
    /// Whether a hash is of this id: `None` when they share no key, so that nothing is known.
    #[must_use]
    pub fn is(&self, hash: AltHash) -> Option<bool> {
        same_id(&self.hashes(), &[hash])
    }

    pub(super) fn hashes(&self) -> Vec<AltHash> {
        self.ids().map(|id| id.hash).collect()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = AlternateId> + '_ {
        let kind = self.id.kind;
        [self.id].into_iter().chain(self.also.iter().map(move |hash| AlternateId { kind, hash: *hash }))
    }

    pub(super) fn short(&self) -> u32 {
        let [_, a, b, c, d, ..] = self.id.hash.0;
        u32::from_be_bytes([a, b, c, d]) ^ u32::from(self.id.kind.0)
    }
}
