//! File names of a data directory, and the faults of a directory in which a file is missing, cut or replaced.

/// File name of the marker in the data directory.
pub const MARKER: &str = "causeway.marker";

/// File name of the audience index; only a directory with a store has one.
pub(crate) const AUDIENCE_INDEX: &str = "audience-index";

/// File name of the log in the data directory.
pub const LOG: &str = "log.db";

/// File name of the log's tail, which holds the number of the highest acknowledged record.
pub(crate) const LOG_TAIL: &str = "log.db-tail";

/// File name of the log's write-ahead file, which SQLite creates.
pub(crate) const LOG_WAL: &str = "log.db-wal";

/// File name of the journal in the data directory.
pub const JOURNAL: &str = "erasures.db";

/// A fault of the files of a data directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataFault {
    /// The store is missing, although other files show that there was one.
    #[error(
        "{STORE} is missing or empty, and the directory had one: put it back, or restore a backup with `causeway restore --from FOLDER`. \
         To begin without any data, choose an empty directory"
    )]
    StoreMissing,
    /// The log is missing.
    #[error("{LOG} is missing: acknowledged facts that the store does not hold yet are in it{}", describe_lost(*.highest, *.folded))]
    LogMissing {
        /// Number of the highest acknowledged record; `None` if the tail file does not say.
        highest: Option<u64>,
        /// Number of the highest record that the store holds.
        folded: u64,
    },
    /// The log ends before the highest acknowledged record: the log or its write-ahead file was cut or replaced by an
    /// older copy.
    #[error(
        "{LOG} ends with record {found}, and record {highest} was acknowledged: {LOG} or {LOG}-wal was cut or replaced"
    )]
    LogCut {
        /// Number of the highest acknowledged record.
        highest: u64,
        /// Number of the highest record in the log.
        found: u64,
    },
    /// The store is older than the log: the log deleted records that the store lacks.
    #[error(
        "{STORE} holds the log's records up to {folded}, and {LOG} has deleted those up to {let_go}: {STORE} was replaced by an \
         older copy. Put the right one back, or restore a backup with `causeway restore --from FOLDER`"
    )]
    StoreOlder {
        /// Number of the highest record that the store holds.
        folded: u64,
        /// Number of the highest record that the log deleted.
        let_go: u64,
    },
    /// A file belongs to another store.
    #[error("{0} belongs to another store than {STORE}: put the right one back, or move it away")]
    ForeignFile(&'static str),
    /// The marker cannot be read.
    #[error("{MARKER} cannot be read: {0}. Remove it if the other files are right")]
    UnreadableMarker(String),
}

impl DataFault {
    /// Whether `causeway data accept-loss` can continue without the lost data.
    #[must_use]
    pub fn is_acceptable(&self) -> bool {
        !matches!(self, Self::StoreMissing | Self::ForeignFile(_) | Self::UnreadableMarker(_))
    }
}

pub(crate) fn describe_lost(highest: Option<u64>, folded: u64) -> String {
    match highest {
        Some(highest) if highest > folded => format!(" (records {} to {highest})", folded + 1),
        Some(_) => " (its tail file says that the store holds all of them)".to_owned(),
        None => String::new(),
    }
}

/// File name of the store in the data directory.
pub const STORE: &str = "causeway.db";
