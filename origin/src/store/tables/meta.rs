//! Statements of the table `meta`: one row with the identity and the counters of the store.

/// Newest change with an erasure.
pub(crate) const META_INDEX_ERASED: &str = "SELECT index_erased FROM meta";

/// Restore epoch, epoch of the index, and number of the newest change of people. `sqlite_sequence` retains the newest
/// number after all changes are deleted.
pub(crate) const META_INDEX_STATE: &str = "SELECT restore_epoch, index_epoch,
    ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'people_changed'), 0) FROM meta";

/// Identity of the store, and newest folded log record.
pub(crate) const META_IDENTITY_AND_FOLDED: &str = "SELECT identity, folded FROM meta";

/// Counters of the store.
pub(crate) const META_COUNTERS: &str = "SELECT restore_epoch, version_counter, epoch_counter, folded FROM meta";

/// Revision of the event names.
pub(crate) const META_EVENT_NAMES: &str = "SELECT event_names FROM meta";

/// Records that the changes so far include an erasure. An index file that was written before the newest change may hold
/// erased visitors.
pub(crate) const META_MARK_INDEX_ERASED: &str =
    "UPDATE meta SET index_erased = ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'people_changed'), 0)";

/// Gives the store another random identity.
pub(crate) const META_RENEW_IDENTITY: &str = "UPDATE meta SET identity = randomblob(16)";

/// Increments the epoch of the audience index.
pub(crate) const META_NEXT_INDEX_EPOCH: &str = "UPDATE meta SET index_epoch = index_epoch + 1";

/// Writes the restore epoch. `?1` epoch.
pub(crate) const META_SET_RESTORE_EPOCH: &str = "UPDATE meta SET restore_epoch = ?1";

/// Raises the epoch counter to the highest epoch of a person, and the version counter to 1.
pub(crate) const META_RAISE_COUNTERS: &str =
    "UPDATE meta SET epoch_counter = max(epoch_counter, (SELECT ifnull(max(epoch), 0) FROM people)),
    version_counter = max(version_counter, 1)";

/// Writes the counters that change with a transaction. `?1` version counter, `?2` epoch counter, `?3` newest folded log
/// record.
pub(crate) const META_SAVE_COUNTERS: &str = "UPDATE meta SET version_counter = ?1, epoch_counter = ?2, folded = ?3";

/// Increments the revision of the event names.
pub(crate) const META_NEXT_EVENT_NAMES: &str = "UPDATE meta SET event_names = event_names + 1";
