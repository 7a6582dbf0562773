//! Errors of an open store.

use crate::store::id_error::IdError;
use crate::store::row_numbers::VisitorRow;
use causeway_shared::wire::WireError;

/// An error of reading or writing an open store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite reported an error.
    #[error("the store failed")]
    Sqlite(#[source] rusqlite::Error),
    /// No random bytes are available.
    #[error("the operating system gives no random bytes")]
    Random(#[from] getrandom::Error),
    /// A stored value does not have the form that this release writes.
    #[error("the store holds a {what} that cannot be read")]
    Corrupt {
        /// Which value.
        what: &'static str,
    },
    /// A stored form cannot be read.
    #[error("the store holds a form that cannot be read")]
    Form(#[from] WireError),
    /// Stored data of a visitor cannot be read; its facts wait.
    #[error("the stored data of the visitor in row {row} of `visitors` cannot be read")]
    Visitor {
        /// The row.
        row: VisitorRow,
        /// The cause.
        #[source]
        source: Box<Self>,
    },
}

impl From<rusqlite::Error> for StoreError {
    /// A column that `CheckedBytes` or [`crate::store::visitor_at`] refused is an error of its value.
    fn from(error: rusqlite::Error) -> Self {
        match error {
            rusqlite::Error::FromSqlConversionFailure(_, _, why) if why.is::<IdError>() => {
                Self::Corrupt { what: "visitor's id" }
            }
            rusqlite::Error::FromSqlConversionFailure(column, kind, why) => match why.downcast::<WireError>() {
                Ok(form) => Self::Form(*form),
                Err(why) => Self::Sqlite(rusqlite::Error::FromSqlConversionFailure(column, kind, why)),
            },
            other => Self::Sqlite(other),
        }
    }
}

impl StoreError {
    /// Whether another connection wrote or read for longer than this one waits.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        match self {
            Self::Sqlite(e) => matches!(e.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked)),
            Self::Visitor { source, .. } => source.is_busy(),
            _ => false,
        }
    }

    /// Whether a statement was interrupted because it took too long.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        match self {
            Self::Sqlite(e) => e.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted),
            Self::Visitor { source, .. } => source.is_interrupted(),
            _ => false,
        }
    }

    /// Whether a single stored value cannot be read; the store may hold all others.
    #[must_use]
    pub fn is_of_a_value(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Form(_) | Self::Visitor { .. })
    }

    /// Adds the visitor's row, if the error concerns a stored value.
    #[must_use]
    pub fn of_visitor(self, row: VisitorRow) -> Self {
        match self {
            Self::Corrupt { .. } | Self::Form(_) => Self::Visitor { row, source: Box::new(self) },
            other => other,
        }
    }
}
