//! What one request's consent signals permit: full identity, or none with the reason.
//!
//! Four signals are read: `Sec-GPC: 1`, an IAB Europe TC string, an IAB GPP string and the older US Privacy
//! string. Every signal that is there must permit; one refusal refuses, whatever the others say. What is
//! there but cannot be decoded is a refusal too, never a consent (invariant 10). Only the absence of all
//! signals is left to the tenant's policy.
//!
//! Decoding is shared with the crate `iab_gpp`: it decodes everything of fixed size – the purposes of both
//! TCF forms, the US sections, the US Privacy string. What can grow or repeat – the GPP header, vendor
//! sections, publisher restrictions – is walked here and never expanded, since `iab_gpp` 0.1.2 turns 4 KB
//! of overlapping ranges into a second of work, misreads headers of three sections, and reads publisher
//! restrictions in another form than the one TCF writes. This module never asks where a request came from:
//! a signal counts because it is there.

mod bits;
mod gpp;
mod tcf;
#[cfg(test)]
mod tests;
mod us;

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::base::limits;
use crate::settings::config::{NoSignal, TenantConfig};

/// What a request said about consent, as gathered; every text as it was sent.
///
/// Where both the body and a cookie carry a text, the caller asks of each, and both must permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signals<'a> {
    /// Global Privacy Control: the request has the header `Sec-GPC: 1`.
    pub gpc: bool,
    /// The TC string: `consent.tcf`, or the cookie `euconsent-v2`.
    pub tcf: Option<&'a str>,
    /// The GPP string: `consent.gpp`, or the cookie `__gpp`.
    pub gpp: Option<&'a str>,
    /// The GPP sections that apply: `consent.gpp_sid`, or the cookie `__gpp_sid` (see [`section_ids`]).
    /// -1 stands for "no section applies", 0 for "not known yet" (GPP CMP API, `applicableSections`).
    pub gpp_sid: Option<&'a [i32]>,
    /// The US Privacy string of before GPP: the cookie `usprivacy`, such as `1YNN`.
    pub us_privacy: Option<&'a str>,
}

/// What a request may do with identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Ids may be minted, read, linked and sent.
    Full,
    /// No id may be touched, except to expire a cookie of ours and to emit one withdrawal.
    None(Refusal),
}

/// Which signal refused: the first that did, in the order of the variants but for the last two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Global Privacy Control.
    Gpc,
    /// The TC string withholds a purpose or the vendor.
    Tcf,
    /// A GPP section that applies opts out or withholds.
    Gpp,
    /// The US Privacy string opts out of sale.
    UsPrivacy,
    /// A signal is there and cannot be decoded, or is invalid by its own specification.
    Undecodable,
    /// A GPP section applies that this release does not know. There is no identity, and no withdrawal either: the visitor
    /// may have consented.
    UnknownSection,
    /// There is no signal, and the tenant's policy is to do without identity then.
    Policy,
}

impl Refusal {
    /// A stable code for answers, metrics and logs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Gpc => "gpc",
            Self::Tcf => "tcf",
            Self::Gpp => "gpp",
            Self::UsPrivacy => "us_privacy",
            Self::Undecodable => "undecodable",
            Self::UnknownSection => "unknown_section",
            Self::Policy => "policy",
        }
    }
}

impl Permission {
    /// Whether identity may be used.
    #[must_use]
    pub fn is_full(self) -> bool {
        self == Self::Full
    }

    /// Whether a visitor that is known takes back what it permitted before.
    #[must_use]
    pub fn is_withdrawal(self) -> bool {
        !matches!(self, Self::Full | Self::None(Refusal::UnknownSection))
    }

    /// What two words permit together: a refusal stands, the first of two, and a yes stands over silence.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::None(Refusal::Policy), said) | (said, Self::None(Refusal::Policy)) => said,
            // What is known of a refusal withdraws; what is unknown does not.
            (Self::None(Refusal::UnknownSection), refused @ Self::None(_)) => refused,
            (refused @ Self::None(_), _) | (_, refused @ Self::None(_)) => refused,
            (Self::Full, Self::Full) => Self::Full,
        }
    }

    /// `full`, or the refusal's code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::None(refusal) => refusal.code(),
        }
    }
}

/// What one signal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// It permits.
    Yes,
    /// It refuses.
    No,
    /// It is there and says nothing about this visitor: no section applies.
    Silent,
    /// It is there and cannot be decoded.
    Unreadable,
    /// It is of a law that this release does not know.
    Unknown,
}

impl From<Option<bool>> for Word {
    /// From a decoder's answer: `None` is "cannot be decoded".
    fn from(answer: Option<bool>) -> Self {
        match answer {
            Some(true) => Self::Yes,
            Some(false) => Self::No,
            None => Self::Unreadable,
        }
    }
}

/// Decides what a request may do with identity.
///
/// Every signal that is there must permit. Without any, `tenant.no_signal` decides.
#[must_use]
pub fn permission(signals: &Signals<'_>, tenant: &TenantConfig) -> Permission {
    if signals.gpc {
        return Permission::None(Refusal::Gpc);
    }
    let tcf = signals.tcf.map(|text| bounded(text, |text| tcf::european_consent(text, tenant).into()));
    let gpp = gpp_word(signals, tenant);
    let us_privacy = signals.us_privacy.map(|text| bounded(text, us::us_privacy));
    let words = [(tcf, Refusal::Tcf), (gpp, Refusal::Gpp), (us_privacy, Refusal::UsPrivacy)];
    let (mut permitted, mut is_unknown) = (tenant.no_signal == NoSignal::Allow, false);
    for (word, refusal) in words {
        match word {
            None | Some(Word::Silent) => {}
            Some(Word::Yes) => permitted = true,
            Some(Word::No) => return Permission::None(refusal),
            Some(Word::Unreadable) => return Permission::None(Refusal::Undecodable),
            Some(Word::Unknown) => is_unknown = true,
        }
    }
    if is_unknown {
        return Permission::None(Refusal::UnknownSection);
    }
    if permitted { Permission::Full } else { Permission::None(Refusal::Policy) }
}

/// What the GPP string says of the sections that apply. Sections that apply without a string that holds
/// them cannot be read, or are unknown; a string of which no section applies is not looked at.
fn gpp_word(signals: &Signals<'_>, tenant: &TenantConfig) -> Option<Word> {
    let applicable = match signals.gpp_sid {
        // As a page's stub tells it before it knows: all sections are asked.
        None | Some([]) => None,
        Some(ids) => {
            if ids.iter().all(|id| *id == gpp::NONE_APPLIES) {
                return None;
            }
            Some(ids)
        }
    };
    match (signals.gpp, applicable) {
        (None, None) => None,
        (None, Some(ids)) => Some(gpp::word_without_string(ids)),
        (Some(text), _) => Some(bounded(text, |text| gpp::gpp_word(text, applicable, tenant))),
    }
}

fn bounded(text: &str, read: impl Fn(&str) -> Word) -> Word {
    if text.is_empty() || text.len() > limits::CONSENT_BYTES { Word::Unreadable } else { read(text) }
}

/// The value of a consent cookie as its writer meant it: without percent-encoding and quotes around it.
#[must_use]
pub fn cookie_text(value: &str) -> Cow<'_, str> {
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    if value.contains('%') { percent_decode_str(value).decode_utf8_lossy() } else { Cow::Borrowed(value) }
}

/// The section ids of a `__gpp_sid` cookie, separated by `,` or `_`. What is not a number becomes 0, which
/// no section has, so that it refuses; an empty text is an empty list.
#[must_use]
pub fn section_ids(text: &str) -> Vec<i32> {
    text.split([',', '_'])
        .map(str::trim)
        .filter(|id| !id.is_empty())
        .take(gpp::SECTIONS + 1)
        .map(|id| id.parse().unwrap_or(0))
        .collect()
}
