//! The identity cookie's content.

use crate::base::ids::{AltHash, Millis, VisitorId};
use crate::base::limits;

/// The content of the identity cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityCookie {
    /// This browser's visitor.
    pub visitor: VisitorId,
    /// Time at which the cookie was written.
    pub written: Millis,
    /// The unique id of the visitor's member, as far as this browser knows.
    pub tag: Option<AltHash>,
    /// Alternate ids whose lookups were read: bytes 1 to 4 of the hash (after the key id), XOR the kind.
    pub covered: Vec<u32>,
    /// Earlier visitors of this browser, each with the unique id of its member; newest first.
    pub earlier: Vec<(AltHash, VisitorId)>,
    /// Visitors of the same person that this visitor's own snapshot does not name yet.
    pub pending: Vec<VisitorId>,
    /// Receive time and short id of the login that tied this visitor to the `pending` ones. A snapshot that contains
    /// the login but does not name them shows that they are not of its person.
    pub login: Option<(Millis, u64)>,
}

impl IdentityCookie {
    /// Whether the cookie is older than its lifetime.
    #[must_use]
    pub fn expired(&self, now: Millis) -> bool {
        self.written.saturating_add(limits::IDENTITY_LIFE_MS) < now
    }

    /// The cookie without a visitor that is gone; `None` if that is the cookie's own visitor.
    #[must_use]
    pub fn without(mut self, gone: VisitorId) -> Option<Self> {
        self.earlier.retain(|(_, visitor)| *visitor != gone);
        (self.visitor != gone).then_some(self)
    }
}
