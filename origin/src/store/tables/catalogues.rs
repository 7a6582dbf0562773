//! Statements of the table `catalogues`: the versions of the tenants' catalogues.

/// Reads the document of version `?2` and its digest.
pub(crate) const CATALOGUES_DOCUMENT: &str =
    "SELECT document, sha256 FROM catalogues WHERE tenant = ?1 AND version = ?2";

/// Reads all versions of tenant `?1` without their documents, the newest first.
pub(crate) const CATALOGUES_OF_TENANT: &str =
    "SELECT version, applied, by, lower(hex(sha256)), published IS NOT NULL, octet_length(document)
    FROM catalogues WHERE tenant = ?1 ORDER BY version DESC";

/// Reads the documents of the versions with the text `?2` of experiments.
pub(crate) const CATALOGUES_DOCUMENTS_BY_EXPERIMENTS: &str =
    "SELECT document FROM catalogues WHERE tenant = ?1 AND experiments = ?2";

/// Reads each distinct text of experiments of tenant `?1`. Versions without a change of their experiments have the same
/// text.
pub(crate) const CATALOGUES_DISTINCT_EXPERIMENTS: &str =
    "SELECT DISTINCT experiments FROM catalogues WHERE tenant = ?1";

/// Inserts a catalogue under the next version of its tenant, and returns the version.
pub(crate) const CATALOGUES_INSERT_NEXT: &str =
    "INSERT INTO catalogues (tenant, version, document, sha256, experiments, budgets, limited, applied, by, queried)
    SELECT ?1, ifnull(max(version), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9
    FROM catalogues WHERE tenant = ?1 RETURNING version";

/// Replaces the parts of version `?2` that are derived from its document.
pub(crate) const CATALOGUES_SET_DERIVED: &str =
    "UPDATE catalogues SET experiments = ?3, budgets = ?4, limited = ?5, queried = ?6
    WHERE tenant = ?1 AND version = ?2";

/// Inserts a copy of version `?2`, applied at `?3`, under the next version of tenant `?1`, and returns that version.
pub(crate) const CATALOGUES_COPY_AS_NEXT: &str =
    "INSERT INTO catalogues (tenant, version, document, sha256, experiments, budgets, limited, applied, by)
    SELECT tenant, (SELECT max(version) + 1 FROM catalogues WHERE tenant = ?1), document, sha256, experiments, budgets,
        limited, ?3, by FROM catalogues WHERE tenant = ?1 AND version = ?2 RETURNING version";

/// Marks the current version of tenant `?1` as replaced at `?2`.
pub(crate) const CATALOGUES_MARK_CURRENT_REPLACED: &str = "UPDATE catalogues SET replaced = ?2 WHERE tenant = ?1
    AND version = (SELECT version FROM catalogue_current WHERE tenant = ?1)";

/// Marks version `?2` as not replaced, because it is current again.
pub(crate) const CATALOGUES_CLEAR_REPLACED: &str =
    "UPDATE catalogues SET replaced = NULL WHERE tenant = ?1 AND version = ?2";

/// Reads the experiments of version `?2`.
pub(crate) const CATALOGUES_EXPERIMENTS: &str = "SELECT experiments FROM catalogues WHERE tenant = ?1 AND version = ?2";

/// Reads the replaced versions of tenant `?1` without the newest `?2` versions, and whether the KV may hold a value.
pub(crate) const CATALOGUES_OUTDATED: &str = "SELECT version, replaced, handed IS NOT NULL FROM catalogues
    WHERE tenant = ?1 AND replaced IS NOT NULL
    AND version <= (SELECT max(version) FROM catalogues WHERE tenant = ?1) - ?2";

/// Reads the time at which version `?2` was replaced, if it is older than the newest `?3` versions.
pub(crate) const CATALOGUES_OUTDATED_SINCE: &str =
    "SELECT replaced FROM catalogues WHERE tenant = ?1 AND version = ?2 AND replaced IS NOT NULL
    AND version <= (SELECT max(version) FROM catalogues WHERE tenant = ?1) - ?3";

/// Reads whether the KV acknowledged the value of version `?2`.
pub(crate) const CATALOGUES_IS_PUBLISHED: &str =
    "SELECT published IS NOT NULL FROM catalogues WHERE tenant = ?1 AND version = ?2";

/// Stores the outbox entry `?3` under which the value of version `?2` was handed out.
pub(crate) const CATALOGUES_SET_HANDED: &str = "UPDATE catalogues SET handed = ?3 WHERE tenant = ?1 AND version = ?2";

/// Marks version `?2` as neither handed out nor published, because its key is deleted.
pub(crate) const CATALOGUES_CLEAR_HANDED: &str =
    "UPDATE catalogues SET handed = NULL, published = NULL WHERE tenant = ?1 AND version = ?2";

/// Reads whether a value was handed out and is not acknowledged.
pub(crate) const CATALOGUES_ANY_UNACKNOWLEDGED: &str =
    "SELECT EXISTS (SELECT 1 FROM catalogues WHERE handed > 0 AND published IS NULL)";

/// Marks the version that was handed out under entry `?1` as published at `?2`, and returns it.
pub(crate) const CATALOGUES_MARK_PUBLISHED: &str =
    "UPDATE catalogues SET published = ?2 WHERE handed = ?1 AND published IS NULL
    RETURNING tenant, version";

/// Marks all versions that are not current as replaced at `?1`. A version that was current before a restore is replaced
/// now.
pub(crate) const CATALOGUES_MARK_OTHERS_REPLACED: &str = "UPDATE catalogues SET replaced = ?1
    WHERE replaced IS NULL AND (tenant, version) NOT IN (SELECT tenant, version FROM catalogue_current)";

/// Marks current and unpublished versions as neither handed out nor published: outbox entries from before a restore are
/// invalid.
pub(crate) const CATALOGUES_CLEAR_HANDED_AFTER_RESTORE: &str = "UPDATE catalogues SET handed = NULL, published = NULL
    WHERE published IS NULL OR (tenant, version) IN (SELECT tenant, version FROM catalogue_current)";

/// Reads the experiments of the replaced versions of tenant `?1`, the version that was replaced last first.
pub(crate) const CATALOGUES_REPLACED_EXPERIMENTS_NEWEST_FIRST: &str =
    "SELECT experiments, replaced FROM catalogues WHERE tenant = ?1 AND replaced IS NOT NULL
    ORDER BY replaced DESC, version DESC";

/// Reads the experiments of the replaced versions of tenant `?1`.
pub(crate) const CATALOGUES_REPLACED_EXPERIMENTS: &str =
    "SELECT experiments, replaced FROM catalogues WHERE tenant = ?1 AND replaced IS NOT NULL";

/// Reads the experiments of all versions of tenant `?1`, the newest version first.
pub(crate) const CATALOGUES_EXPERIMENTS_NEWEST_FIRST: &str =
    "SELECT version, experiments FROM catalogues WHERE tenant = ?1 ORDER BY version DESC";

/// Reads the documents of all versions of tenant `?1`, the newest version first.
pub(crate) const CATALOGUES_DOCUMENTS_NEWEST_FIRST: &str =
    "SELECT version, document FROM catalogues WHERE tenant = ?1 ORDER BY version DESC";

/// Reads the numbers of all versions of all tenants.
pub(crate) const CATALOGUES_ALL_VERSIONS: &str = "SELECT tenant, version FROM catalogues ORDER BY tenant, version";

/// Caps `replaced` at `?1` if it is more than `?2` later.
pub(crate) const CATALOGUES_CAP_REPLACED: &str = "UPDATE catalogues SET replaced = ?1 WHERE replaced > ?1 + ?2";
