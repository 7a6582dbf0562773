//! An alternate id as one request claims it.

use super::members::same_id;
use crate::base::ids::{AltHash, AlternateId};

/// An alternate id of a request. An id of a unique kind needs a proof, unless the tenant trusts its pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdClaim {
    /// The id hashed under the active key.
    pub id: AlternateId,
    /// The hashes under the other readable keys.
    pub also: Vec<AltHash>,
    /// Whether the id's kind is unique.
    pub unique: bool,
    /// Whether the request has a proof of the id.
    pub proven: bool,
}

impl IdClaim {
    /// Whether a hash is of this id; `None` if it is under a key that this claim has no hash of.
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
