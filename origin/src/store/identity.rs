//! The random identity of a store; its log, journal and marker repeat it.

use std::fmt;

/// Random identity of a store; its log and its journal repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreIdentity([u8; 16]);

impl StoreIdentity {
    pub(crate) fn from_column(bytes: Option<Vec<u8>>) -> Option<Self> {
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Self)
    }

    /// The identity as a column stores it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for StoreIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}
