//! An alternate id, or a reference to one, that cannot be used.

use causeway_shared::base::limits;

/// Why what names an alternate id is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The tenant has no such kind.
    #[error("the tenant has no kind of alternate id of that name")]
    Kind,
    /// The value is empty or over its bound.
    #[error("an alternate id has 1 to {} bytes", limits::ALTERNATE_ID_BYTES)]
    Length,
    /// The value stands for a missing id.
    #[error("the value stands for a missing id, such as `null` or `undefined`: it would make one person of many")]
    Placeholder,
}
