//! The identity cookie's content.

use crate::base::ids::{AltHash, Millis, VisitorId};
use crate::base::limits;

/// What the identity cookie says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityCookie {
    /// This browser's visitor.
    pub visitor: VisitorId,
    /// When the cookie was written.
    pub written: Millis,
    /// The unique id that the visitor holds, as far as this browser knows.
    pub tag: Option<AltHash>,
    /// Alternate ids whose lookup was read: their first four hash bytes after the key id.
    pub covered: Vec<u32>,
    /// Earlier visitors of this browser and the unique id each holds, newest first.
    pub earlier: Vec<(AltHash, VisitorId)>,
    /// Visitors of the same person that this visitor's own snapshot does not name yet.
    pub pending: Vec<VisitorId>,
    /// Receipt and short id of a login that tied this visitor to them: a snapshot that holds it and does not name them says
    /// that they are not of its person.
    pub login: Option<(Millis, u64)>,
}

impl IdentityCookie {
    /// Whether browsers should have dropped it by now.
    #[must_use]
    pub fn expired(&self, now: Millis) -> bool {
        self.written.saturating_add(limits::IDENTITY_LIFE_MS) < now
    }

    /// The same without a visitor that is gone; `None` where it is its own.
    #[must_use]
    pub fn without(mut self, gone: VisitorId) -> Option<Self> {
        self.earlier.retain(|(_, visitor)| *visitor != gone);
        (self.visitor != gone).then_some(self)
    }
}
