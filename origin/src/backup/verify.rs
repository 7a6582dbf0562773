//! Whether a backup is whole, before it is needed.

use std::path::Path;

use causeway_shared::wire::profile as form;

use super::{BackupError, COPYING, Held, inspect, manifest, open, open_checked};
use crate::store;

/// Checks a backup as a whole: its files against the digests that were taken with it, the structure of both, and that
/// what is stored of each visitor can be read. Gives what it holds, and of how many visitors something cannot be read.
///
/// # Errors
/// [`BackupError`].
pub fn verify(from: &Path) -> Result<(Held, u64), BackupError> {
    const STORED: &str = "SELECT profile, segments, attributes FROM visitors";
    let held = inspect(from)?;
    if !manifest::check(from)? {
        return Err(BackupError::Damaged(format!("{} is missing", from.join(manifest::FILE).display())));
    }
    for (file, _) in COPYING {
        open_checked(&from.join(file), "PRAGMA integrity_check(1)")?;
    }
    let conn = open(&from.join(store::FILE))?;
    let mut statement = conn.prepare(STORED)?;
    let (mut rows, mut unreadable) = (statement.query([])?, 0);
    while let Some(row) = rows.next()? {
        let [profile, segments, attributes]: [Vec<u8>; 3] = [row.get(0)?, row.get(1)?, row.get(2)?];
        let is_whole = form::decode(&profile).is_ok()
            && (segments.is_empty() || form::segments(&segments).is_ok())
            && (attributes.is_empty() || form::attributes(&attributes).is_ok());
        unreadable += u64::from(!is_whole);
    }
    Ok((held, unreadable))
}
