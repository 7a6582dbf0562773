//! Checks that a backup is intact before it is needed.

use crate::store::VisitorRow;
use std::path::Path;

use super::{BackupContents, BackupError, COPYING, inspect_backup, manifest, open, open_checked};
use crate::maintenance::scrub::{self, CheckedPage, ScrubReport};

/// Visitors read at a time.
const SOME: u32 = 500;

/// Checks a whole backup: its files against their digests, the structure of both, and the stored rows of each visitor.
/// Returns the contents and the number of visitors with unreadable rows.
///
/// # Errors
/// [`BackupError`].
pub fn verify_backup(from: &Path) -> Result<(BackupContents, u64), BackupError> {
    let held = inspect_backup(from)?;
    if !manifest::check_folder(from)? {
        return Err(BackupError::Damaged(format!("{} is missing", from.join(manifest::FILE).display())));
    }
    for (file, _) in COPYING {
        open_checked(&from.join(file), "PRAGMA integrity_check(1)")?;
    }
    let conn = open(&from.join(crate::store::data_fault::STORE))?;
    let (mut scrubbed, mut after) = (ScrubReport::default(), VisitorRow::default());
    while let Some(CheckedPage { last, .. }) = scrub::check_visitors(&conn, after, SOME, &mut scrubbed)? {
        after = last;
    }
    Ok((held, scrubbed.damaged_visitors))
}
