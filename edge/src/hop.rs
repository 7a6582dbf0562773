//! A call of an object on its way out: objects are the platform's, each there once in the world.

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

/// A call of another object: its name and the bytes.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) class: Class,
    pub(crate) object: String,
    pub(crate) call: Vec<u8>,
}
