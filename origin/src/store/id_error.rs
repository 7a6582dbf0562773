//! Errors of alternate ids and of references to them.

use causeway_shared::base::limits;

/// The reason why an alternate id cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The tenant has no such kind.
    #[error("the tenant has no kind of alternate id of that name")]
    Kind,
    /// The value is empty or too long.
    #[error("an alternate id has 1 to {} bytes", limits::ALTERNATE_ID_BYTES)]
    Length,
    /// The value stands for a missing id.
    #[error("the value stands for a missing id, such as `null` or `undefined`: it would join many people into one")]
    Placeholder,
}
