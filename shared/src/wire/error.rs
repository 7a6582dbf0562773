//! The error of all wire forms.

/// The reason why bytes are not of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// There are more bytes than the form may have.
    #[error("the value is too long")]
    TooLong,
    /// The bytes are not the CBOR of the form.
    #[error("the bytes are not of the expected form")]
    Malformed,
    /// This release does not know the form.
    #[error("the form is not known to this release")]
    UnknownForm,
    /// The checksum does not match: the value was cut or changed, or belongs to another key.
    #[error("the checksum does not match")]
    Checksum,
    /// A value is out of its range, a list is over its bound, or values are nested too deep.
    #[error("a value is out of its range")]
    Range,
}

impl WireError {
    /// A permanent name for metrics.
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
