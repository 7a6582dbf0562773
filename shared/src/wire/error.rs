//! Why bytes are not of a form.

/// Why bytes are not of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// More bytes than the form may have.
    #[error("too long")]
    TooLong,
    /// Not the CBOR that the form asks for.
    #[error("not of the form")]
    Malformed,
    /// A form that this release does not read.
    #[error("a form that this release does not know")]
    UnknownForm,
    /// The checksum does not fit: the value was cut, changed, or is another key's.
    #[error("the checksum does not fit")]
    Checksum,
    /// A value out of its range, a list over its bound, or values nested too deep.
    #[error("a value out of its range")]
    Range,
}

impl WireError {
    /// A stable name for metrics.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::UnknownForm => "unknown_form",
            Self::Checksum => "checksum",
            Self::Range => "range",
        }
    }
}
