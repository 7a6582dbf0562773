//! Keys that a request reads in addition to its visitor's history.

use causeway_shared::base::limits;
use causeway_shared::wire::catalogue::CataloguePointer;
use causeway_shared::wire::kv_keys;

/// Keys that are read in the same bulk as the visitor's history.
#[derive(Debug, Default)]
pub(crate) struct ExtraReads {
    /// The catalogue's pointer, the model, and traffic allocation.
    pub(crate) pointer: bool,
    /// The catalogue version that the pointer named.
    pub(crate) version: Option<CataloguePointer>,
    /// The attribute names.
    pub(crate) names: bool,
}

impl ExtraReads {
    /// The number of keys.
    pub(crate) fn count(&self) -> usize {
        let names = if self.names { limits::ATTRIBUTE_PAGES } else { 0 };
        kv_keys::STANDING_KEYS * usize::from(self.pointer) + usize::from(self.version.is_some()) + names
    }

    pub(crate) fn reads_catalogue(&self) -> bool {
        self.pointer || self.version.is_some()
    }
}
