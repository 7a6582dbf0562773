//! A call of an object on its way out: objects are the platform's, each there once in the world.

use causeway_shared::identity::Recognised;
use causeway_shared::ids::VisitorId;
use causeway_shared::limits;
use serde::Serialize;

/// Which objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Class {
    /// Of strict caps, one a visitor.
    #[default]
    Persons,
    /// Of limited offers, one a campaign and range.
    Units,
}

impl Class {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The members of a request's person that an object is told of, in order: the smallest, by which all its browsers find the
/// same object, is among them.
pub(crate) fn members(who: &Recognised) -> Vec<VisitorId> {
    who.counted().members().iter().copied().take(limits::STRICT_MEMBERS).collect()
}

/// A call of another object: its name and the bytes.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) class: Class,
    pub(crate) object: String,
    pub(crate) call: Vec<u8>,
}
