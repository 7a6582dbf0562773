//! Bearer tokens of the admin side: 256 random bits, of which the store has the SHA-256 only.
//!
//! A plain hash suffices, because the tokens are random and long: no dictionary contains them.

use crate::base::attribution::Attribution;
use crate::store::tables::tokens;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::HOUR_MS;
use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::base::integers::{signed, unsigned};
use crate::base::key_file::{self, KeyError};
use crate::store::StoreError;

/// First characters of every token, by which scanners for leaked secrets recognise it.
const PREFIX: &str = "cwt_";
/// Length of a token's text in bytes.
const LENGTH: usize = PREFIX.len() + 43;

/// The rights of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenRole {
    /// May read.
    Viewer,
    /// May read, write, and start jobs.
    Operator,
    /// May read, erase, and read the audit trail.
    Privacy,
}

impl TokenRole {
    /// Name of the role.
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

    /// Whether a token of this role may call a route for `needed`. Every role may call a route for viewers.
    #[must_use]
    pub fn may(self, needed: Self) -> bool {
        needed == Self::Viewer || self == needed
    }
}

/// A token without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdminToken {
    /// Number of the token, by which it is revoked.
    pub id: i64,
    /// Role of the token.
    pub role: TokenRole,
    /// Name that the operator gave.
    pub name: String,
    /// Time of creation.
    pub created_ms: Millis,
    /// Time of revocation.
    pub revoked_ms: Option<Millis>,
    /// Name of the only tenant of the token; `None` for all tenants.
    pub tenant: Option<String>,
    /// Expiry; `None` for a token that does not expire.
    pub expires_ms: Option<Millis>,
    /// Hour of the last use.
    pub used_ms: Option<Millis>,
}

/// Role, tenant and life of a new token.
#[derive(Debug, Clone, Copy)]
pub struct TokenGrant<'a> {
    /// Role of the token.
    pub role: TokenRole,
    /// Name that the operator gave.
    pub name: &'a str,
    /// Only tenant of the token; `None` for all tenants.
    pub tenant: Option<&'a str>,
    /// Expiry; `None` for a token that does not expire.
    pub expires_ms: Option<Millis>,
}

impl AdminToken {
    /// Attribution of a change that the token makes.
    #[must_use]
    pub fn attribution(&self, reason: Option<String>) -> Attribution {
        Attribution::token(self.id, &self.name, self.role.as_str(), reason)
    }

    /// Whether the token is for the tenant.
    #[must_use]
    pub fn is_for(&self, tenant: &str) -> bool {
        self.tenant.as_deref().is_none_or(|only| only == tenant)
    }
}

/// The reason for which no token was created.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system gave no random bytes.
    #[error(transparent)]
    Random(#[from] KeyError),
}

/// Creates a token. Its text is returned once and stored nowhere.
///
/// # Errors
/// [`TokenError`].
pub fn create_token(conn: &Connection, grant: TokenGrant<'_>, now: Millis) -> Result<(AdminToken, String), TokenError> {
    let TokenGrant { role, name, tenant, expires_ms } = grant;
    let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(key_file::random_bytes::<32>()?));
    let values = (hash(&text), role.as_str(), name, signed(now), tenant, expires_ms.map(signed));
    conn.execute(tokens::TOKENS_INSERT, values).map_err(StoreError::from)?;
    let (id, name, tenant) = (conn.last_insert_rowid(), name.to_owned(), tenant.map(str::to_owned));
    Ok((AdminToken { id, role, name, created_ms: now, revoked_ms: None, tenant, expires_ms, used_ms: None }, text))
}

fn read(row: &Row<'_>) -> Result<AdminToken, StoreError> {
    let time = |column: usize| row.get::<_, Option<i64>>(column).map(|time| time.map(unsigned));
    Ok(AdminToken {
        id: row.get(0)?,
        role: TokenRole::parse(&row.get::<_, String>(1)?).ok_or(StoreError::Corrupt { what: "token's role" })?,
        name: row.get(2)?,
        created_ms: unsigned(row.get(3)?),
        revoked_ms: time(4)?,
        tenant: row.get(5)?,
        expires_ms: time(6)?,
        used_ms: time(7)?,
    })
}

/// The token of a text; `None` when it is not known, revoked or over.
///
/// # Errors
/// [`StoreError`].
pub fn find_token(conn: &Connection, text: &str, now: Millis) -> Result<Option<AdminToken>, StoreError> {
    if text.len() != LENGTH {
        return Ok(None);
    }
    let mut statement = conn.prepare_cached(tokens::TOKENS_VALID_BY_HASH)?;
    let mut rows = statement.query([hash(text)])?;
    let found = rows.next()?.map(read).transpose()?;
    Ok(found.filter(|token| token.expires_ms.is_none_or(|expires| expires > now)))
}

/// All tokens, the oldest first.
///
/// # Errors
/// [`StoreError`].
pub fn list_tokens(conn: &Connection) -> Result<Vec<AdminToken>, StoreError> {
    let mut statement = conn.prepare(tokens::TOKENS_ALL)?;
    let mut rows = statement.query([])?;
    let mut tokens = Vec::new();
    while let Some(row) = rows.next()? {
        tokens.push(read(row)?);
    }
    Ok(tokens)
}

/// Whether a use of the token at `now` is to be stored: one time an hour shows whether the token is still in use.
#[must_use]
pub fn is_use_due(token: &AdminToken, now: Millis) -> bool {
    token.used_ms.is_none_or(|used| whole_hour(now) > used)
}

/// Stores the hour of a token's use.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn note_use(conn: &Connection, id: i64, now: Millis) -> Result<(), StoreError> {
    conn.execute(tokens::TOKENS_SET_USED, (id, signed(whole_hour(now))))?;
    Ok(())
}

fn whole_hour(now: Millis) -> Millis {
    now - now % HOUR_MS
}

/// Revokes a token. Returns false if no valid token has the number.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn revoke_token(conn: &Connection, id: i64, now: Millis) -> Result<bool, StoreError> {
    Ok(conn.execute(tokens::TOKENS_REVOKE, (id, signed(now)))? == 1)
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
        let grant = TokenGrant { role: TokenRole::Operator, name: "ci", tenant: None, expires_ms: None };
        let (token, text) = create_token(&conn, grant, 7).unwrap();
        assert_eq!(text.len(), LENGTH);
        let role_of = |text: &str| find_token(&conn, text, 7).unwrap().map(|token| token.role);
        assert_eq!(role_of(&text), Some(TokenRole::Operator));
        assert_eq!(role_of(&text.to_uppercase()), None);
        assert_eq!(role_of(""), None);
        assert!(revoke_token(&conn, token.id, 8).unwrap());
        assert!(!revoke_token(&conn, token.id, 9).unwrap());
        assert_eq!(role_of(&text), None);
        assert_eq!(list_tokens(&conn).unwrap()[0].revoked_ms, Some(8));
        drop(conn);
        let file = std::fs::read(store::store_file(folder.path())).unwrap();
        let inside = |needle: &str| file.windows(needle.len()).any(|w| w == needle.as_bytes());
        assert!(inside("operator"));
        assert!(!inside(&text[PREFIX.len()..]));
    }

    #[test]
    fn a_token_ends_by_itself_and_says_when_it_was_used_last() {
        let folder = tempfile::tempdir().unwrap();
        let conn = store::open(folder.path()).unwrap();
        let grant =
            TokenGrant { role: TokenRole::Viewer, name: "ci", tenant: Some("pub"), expires_ms: Some(9 * HOUR_MS) };
        let (token, text) = create_token(&conn, grant, 7).unwrap();
        assert!(token.is_for("pub") && !token.is_for("demo"));
        let found = |now| find_token(&conn, &text, now).unwrap();
        assert_eq!((found(9 * HOUR_MS - 1).is_some(), found(9 * HOUR_MS).is_none()), (true, true));
        assert!(is_use_due(&found(5).unwrap(), 5 * HOUR_MS + 1));
        note_use(&conn, token.id, 5 * HOUR_MS + 1).unwrap();
        note_use(&conn, token.id, 4 * HOUR_MS).unwrap();
        let used = found(5).unwrap();
        assert_eq!((used.used_ms, is_use_due(&used, 6 * HOUR_MS - 1)), (Some(5 * HOUR_MS), false));
    }

    #[test]
    fn everybody_reads_and_only_the_role_itself_does_more() {
        assert!(TokenRole::Privacy.may(TokenRole::Viewer));
        assert!(TokenRole::Operator.may(TokenRole::Operator));
        assert!(!TokenRole::Viewer.may(TokenRole::Operator));
        assert!(!TokenRole::Operator.may(TokenRole::Privacy));
    }
}
