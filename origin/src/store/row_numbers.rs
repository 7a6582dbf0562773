//! Numbers of rows that functions pass to each other, one type per table.

use std::fmt;

use causeway_shared::base::time::Minute;
use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef};

/// Declares the number of a table's rows: a column of SQLite reads and writes it as an integer. The default is 0, the
/// position before the first row.
macro_rules! row_number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(i64);

        impl $name {
            /// The row with a number, such as the cursor of a job.
            #[must_use]
            pub const fn from_number(number: i64) -> Self {
                Self(number)
            }

            /// The number, such as the cursor of a job.
            #[must_use]
            pub const fn number(self) -> i64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                self.0.to_sql()
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                i64::column_result(value).map(Self)
            }
        }
    };
}

row_number! {
    /// Row number of a visitor in `visitors`, below 2³¹: keys of minutes hold it in their upper 32 bits.
    VisitorRow
}

row_number! {
    /// Number of a run of a job.
    RunNo
}

row_number! {
    /// Row number of a send.
    SendNo
}

impl VisitorRow {
    /// Key of a minute of the visitor: the row in the upper 32 bits, the minute in the lower 32.
    #[must_use]
    pub fn minute_key(self, minute: Minute) -> i64 {
        self.0 << 32 | i64::from(minute.0)
    }

    /// The keys of all minutes of the visitor: the first one, and the first one of the next visitor.
    #[must_use]
    pub fn minute_keys(self) -> [i64; 2] {
        [self.minute_key(Minute(0)), Self(self.0 + 1).minute_key(Minute(0))]
    }
}

/// The minute of a key from [`VisitorRow::minute_key`].
#[must_use]
pub fn minute_of_key(key: i64) -> Minute {
    Minute(u32::try_from(key & i64::from(u32::MAX)).unwrap_or_default())
}
