//! Statements of the table `tokens`: the tokens of the admin side.

/// Columns of a token without its hash.
macro_rules! columns {
    () => {
        "token, role, name, created, revoked, tenant, expires, used"
    };
}

/// Reads the token with hash `?1`, unless it is revoked. The caller compares the expiry with the time.
pub(crate) const TOKENS_VALID_BY_HASH: &str =
    concat!("SELECT ", columns!(), " FROM tokens WHERE hash = ?1 AND revoked IS NULL");

/// Reads all tokens, in the order of their creation.
pub(crate) const TOKENS_ALL: &str = concat!("SELECT ", columns!(), " FROM tokens ORDER BY token");

/// Inserts a token. `?1` is the SHA-256 of its text, and `?5` the name of its tenant or NULL.
pub(crate) const TOKENS_INSERT: &str =
    "INSERT INTO tokens (hash, role, name, created, tenant, expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Sets the last use of token `?1` to `?2`. An earlier time changes nothing, so that a token is written once an hour.
pub(crate) const TOKENS_SET_USED: &str = "UPDATE tokens SET used = ?2 WHERE token = ?1 AND ifnull(used, 0) < ?2";

/// Revokes token `?1` at `?2`. A revoked token keeps its time.
pub(crate) const TOKENS_REVOKE: &str = "UPDATE tokens SET revoked = ?2 WHERE token = ?1 AND revoked IS NULL";
