//! Bearer tokens of the admin side: 256 random bits, of which the store keeps only the SHA-256.
//!
//! A plain hash is enough, as the tokens are random and long: there is no dictionary to try.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use causeway_shared::ids::Millis;
use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::keyfile::{self, KeyError};
use crate::store::{StoreError, signed, unsigned};

/// Every token begins with this, so that scanners of leaked secrets know it.
const PREFIX: &str = "cwt_";
/// Length of a token's text.
const LENGTH: usize = PREFIX.len() + 43;

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads.
    Viewer,
    /// Reads and operates.
    Operator,
    /// Reads and erases.
    Privacy,
}

impl Role {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Privacy => "privacy",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Viewer, Self::Operator, Self::Privacy].into_iter().find(|r| r.as_str() == text)
    }

    /// Whether a token of this role may do what asks for `needed`: everybody reads.
    #[must_use]
    pub fn may(self, needed: Self) -> bool {
        needed == Self::Viewer || self == needed
    }
}

/// A token as it is listed: never its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Token {
    /// Its number, for revoking it.
    pub id: i64,
    /// What it may do.
    pub role: Role,
    /// What the operator calls it.
    pub name: String,
    /// When it was made.
    pub created_ms: Millis,
    /// When it was revoked.
    pub revoked_ms: Option<Millis>,
}

/// Why there is no new token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No random bytes.
    #[error(transparent)]
    Random(#[from] KeyError),
}

/// Makes a token. Its text is returned once and kept nowhere.
///
/// # Errors
/// [`TokenError`].
pub fn create(conn: &Connection, role: Role, name: &str, now: Millis) -> Result<(Token, String), TokenError> {
    const INSERT: &str = "INSERT INTO tokens (hash, role, name, created) VALUES (?1, ?2, ?3, ?4)";
    let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(keyfile::random::<32>()?));
    conn.execute(INSERT, (hash(&text), role.as_str(), name, signed(now))).map_err(StoreError::from)?;
    let id = conn.last_insert_rowid();
    Ok((Token { id, role, name: name.to_owned(), created_ms: now, revoked_ms: None }, text))
}

/// The token of a text; `None` when it is not known or revoked.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn find(conn: &Connection, text: &str) -> Result<Option<Token>, StoreError> {
    const FIND: &str = "SELECT role, token, name, created FROM tokens WHERE hash = ?1 AND revoked IS NULL";
    if text.len() != LENGTH {
        return Ok(None);
    }
    let found = conn.prepare_cached(FIND)?.query_row([hash(text)], |row| {
        let role = Role::parse(&row.get::<_, String>(0)?);
        let (id, name, created_ms) = (row.get(1)?, row.get(2)?, unsigned(row.get(3)?));
        Ok(role.map(|role| Token { id, role, name, created_ms, revoked_ms: None }))
    });
    Ok(found.optional()?.flatten())
}

/// All tokens, the oldest first.
///
/// # Errors
/// [`StoreError`].
pub fn list(conn: &Connection) -> Result<Vec<Token>, StoreError> {
    let mut statement = conn.prepare("SELECT token, role, name, created, revoked FROM tokens ORDER BY token")?;
    let mut rows = statement.query([])?;
    let mut tokens = Vec::new();
    while let Some(row) = rows.next()? {
        let role: String = row.get(1)?;
        let revoked: Option<i64> = row.get(4)?;
        tokens.push(Token {
            id: row.get(0)?,
            role: Role::parse(&role).ok_or(StoreError::Corrupt { what: "token's role" })?,
            name: row.get(2)?,
            created_ms: unsigned(row.get(3)?),
            revoked_ms: revoked.map(unsigned),
        });
    }
    Ok(tokens)
}

/// Revokes a token; false when there is none of that number that is not revoked yet.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn revoke(conn: &Connection, id: i64, now: Millis) -> Result<bool, StoreError> {
    const REVOKE: &str = "UPDATE tokens SET revoked = ?2 WHERE token = ?1 AND revoked IS NULL";
    Ok(conn.execute(REVOKE, (id, signed(now)))? == 1)
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::store;

    #[test]
    fn a_token_works_until_it_is_revoked_and_its_text_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let conn = store::open(folder.path()).unwrap();
        let (token, text) = create(&conn, Role::Operator, "ci", 7).unwrap();
        assert_eq!(text.len(), LENGTH);
        let role_of = |text: &str| find(&conn, text).unwrap().map(|token| token.role);
        assert_eq!(role_of(&text), Some(Role::Operator));
        assert_eq!(role_of(&text.to_uppercase()), None);
        assert_eq!(role_of(""), None);
        assert!(revoke(&conn, token.id, 8).unwrap());
        assert!(!revoke(&conn, token.id, 9).unwrap());
        assert_eq!(role_of(&text), None);
        assert_eq!(list(&conn).unwrap()[0].revoked_ms, Some(8));
        drop(conn);
        let file = std::fs::read(store::file(folder.path())).unwrap();
        let inside = |needle: &str| file.windows(needle.len()).any(|w| w == needle.as_bytes());
        assert!(inside("operator"));
        assert!(!inside(&text[PREFIX.len()..]));
    }

    #[test]
    fn everybody_reads_and_only_the_role_itself_does_more() {
        assert!(Role::Privacy.may(Role::Viewer));
        assert!(Role::Operator.may(Role::Operator));
        assert!(!Role::Viewer.may(Role::Operator));
        assert!(!Role::Operator.may(Role::Privacy));
    }
}
