//! Attribution of a change: its author and the reason given.

use causeway_shared::base::limits;
use serde::{Deserialize, Serialize};

/// Author of erasures by the job `retention`.
pub(crate) const RETENTION: &str = "job:retention";

/// Author of a change and the reason given, as stored with a log record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Attribution {
    /// Kind of author: `token:NUMBER`, `cli`, `admin`, `visitor`, `journal` or `job:NAME`.
    pub by: String,
    /// Name of the token, or of the operating system's user.
    pub name: Option<String>,
    /// Role of the token.
    pub role: Option<String>,
    /// Reason in the author's words.
    pub reason: Option<String>,
    /// For an unlink: the second visitor, which the fact does not contain.
    pub other: Option<String>,
    /// Receipt of an import run; its records share one row of the audit trail.
    pub run: Option<String>,
}

impl Attribution {
    /// A change made with a token of the admin API.
    #[must_use]
    pub fn token(id: i64, name: &str, role: &str, reason: Option<String>) -> Self {
        let role = Some(role.to_owned());
        Self { by: format!("token:{id}"), name: bounded_name(name), role, reason, ..Self::default() }
    }

    /// A change made on the command line; `user` is the name of the operating system's user.
    #[must_use]
    pub fn cli(user: Option<&str>, reason: Option<String>) -> Self {
        Self { name: user.and_then(bounded_name), reason, ..Self::by("cli") }
    }

    /// An attribution with an author only; `who` has the form of the field `by`.
    #[must_use]
    pub fn by(who: &str) -> Self {
        Self { by: who.to_owned(), ..Self::default() }
    }

    /// Attribution of a log record. A record without one came from the admin API (`admin`) or from an edge, which acts
    /// for visitors only.
    #[must_use]
    pub fn of(said: Option<&Self>, admin: bool) -> Self {
        said.cloned().unwrap_or_else(|| Self::by(if admin { "admin" } else { "visitor" }))
    }
}

/// Removes line breaks and control characters and cuts the name to [`limits::REASON_CHARS`]; `None` if nothing remains.
pub(crate) fn bounded_name(name: &str) -> Option<String> {
    let name: String = name.chars().filter(|c| !breaks_line(*c)).take(limits::REASON_CHARS).collect();
    Some(name).filter(|name| !name.is_empty())
}

pub(crate) fn breaks_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// A reason that is too long, empty or contains a control character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid reason: expected one line of 1 to {} characters without control characters; shorten it, or name a ticket",
    limits::REASON_CHARS
)]
pub struct BadReason;

/// Checks a reason from outside and returns it without surrounding spaces.
///
/// # Errors
/// [`BadReason`].
pub fn checked_reason(text: &str) -> Result<String, BadReason> {
    let text = text.trim_matches(' ');
    let fits = !text.is_empty() && text.chars().count() <= limits::REASON_CHARS && !text.contains(breaks_line);
    if fits { Ok(text.to_owned()) } else { Err(BadReason) }
}
