//! Attribution: who asked for a change, and why.

use causeway_shared::base::limits;
use serde::{Deserialize, Serialize};

/// The author of erasures by the job `retention`.
pub(crate) const RETENTION: &str = "job:retention";

/// Who asked for a change, and why: as it travels in the log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Attribution {
    /// `token:NUMBER`, `cli`, `visitor`, `job:NAME`.
    pub by: String,
    /// What the token, or the operating system's user, is called.
    pub name: Option<String>,
    /// The token's role.
    pub role: Option<String>,
    /// Why, in the words of who asked.
    pub reason: Option<String>,
    /// The visitor that another was unlinked from: the facts do not say it.
    pub other: Option<String>,
    /// What many records have in common, which come to one row: the run of an import, as a receipt.
    pub run: Option<String>,
}

impl Attribution {
    /// By a token of the admin side.
    #[must_use]
    pub fn token(id: i64, name: &str, role: &str, reason: Option<String>) -> Self {
        let role = Some(role.to_owned());
        Self { by: format!("token:{id}"), name: bounded_name(name), role, reason, ..Self::default() }
    }

    /// By the command line, as the operating system's user of that name.
    #[must_use]
    pub fn cli(user: Option<&str>, reason: Option<String>) -> Self {
        Self { name: user.and_then(bounded_name), reason, ..Self::by("cli") }
    }

    /// By somebody who gives no reason.
    #[must_use]
    pub fn by(who: &str) -> Self {
        Self { by: who.to_owned(), ..Self::default() }
    }

    /// Of a record: where nothing was said of it, it is an edge's, who speaks for visitors alone.
    #[must_use]
    pub fn of(said: Option<&Self>, admin: bool) -> Self {
        said.cloned().unwrap_or_else(|| Self::by(if admin { "admin" } else { "visitor" }))
    }
}

/// A name without what does not belong into a line.
pub(crate) fn bounded_name(name: &str) -> Option<String> {
    let name: String = name.chars().filter(|c| !breaks_line(*c)).take(limits::REASON_CHARS).collect();
    Some(name).filter(|name| !name.is_empty())
}

pub(crate) fn breaks_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// A reason that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a reason is one line of 1 to {} characters, none of them a control character: shorten it, or name the ticket that says it",
    limits::REASON_CHARS
)]
pub struct BadReason;

/// A reason from outside.
///
/// # Errors
/// [`BadReason`].
pub fn checked_reason(text: &str) -> Result<String, BadReason> {
    let text = text.trim_matches(' ');
    let fits = !text.is_empty() && text.chars().count() <= limits::REASON_CHARS && !text.contains(breaks_line);
    if fits { Ok(text.to_owned()) } else { Err(BadReason) }
}
