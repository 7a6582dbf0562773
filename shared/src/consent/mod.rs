//! Permission of a request, from its consent signals: full identity, or none with a reason.
//!
//! Four signals are read: `Sec-GPC: 1`, an IAB Europe TC string, an IAB GPP string and the older US Privacy string.
//! Every signal that is present must permit; a single refusal wins over all others. A signal that cannot be decoded is
//! a refusal, never a consent (invariant 10). The tenant's policy decides only if there is no signal at all.
//!
//! Decoding is shared with the crate `iab_gpp`, which decodes everything of fixed size: the purposes of both TCF forms,
//! the US sections, the US Privacy string. Parts that can grow or repeat (the GPP header, vendor sections, publisher
//! restrictions) are walked here without being expanded, for three reasons: `iab_gpp` 0.1.2 turns 4 KB of overlapping
//! ranges into a second of work, misreads headers of three sections, and reads publisher restrictions in another form
//! than TCF writes. The location of a request has no influence: a signal counts because it is present.

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

/// Consent signals of a request; every text is stored as it was sent.
///
/// If the body and a cookie both carry a text, the caller asks for a permission with each, and both must permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signals<'a> {
    /// Global Privacy Control: whether the request has the header `Sec-GPC: 1`.
    pub gpc: bool,
    /// TC string: `consent.tcf`, or the cookie `euconsent-v2`.
    pub tcf: Option<&'a str>,
    /// GPP string: `consent.gpp`, or the cookie `__gpp`.
    pub gpp: Option<&'a str>,
    /// Applicable GPP sections: `consent.gpp_sid`, or the cookie `__gpp_sid` (see [`section_ids`]). -1 means "no
    /// section applies", 0 means "not known yet" (GPP CMP API, `applicableSections`).
    pub gpp_sid: Option<&'a [i32]>,
    /// US Privacy string, which preceded GPP: the cookie `usprivacy`, such as `1YNN`.
    pub us_privacy: Option<&'a str>,
}

/// Permission of a request to use identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Ids may be minted, read, linked and sent.
    Full,
    /// No id may be used, except to expire one of our cookies and to send one withdrawal.
    None(Refusal),
}

/// The signal that refused: the first one in the order of the variants, except for the last two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Global Privacy Control is set.
    Gpc,
    /// The TC string withholds a purpose or the vendor.
    Tcf,
    /// An applicable GPP section opts out or withholds consent.
    Gpp,
    /// The US Privacy string opts out of sale.
    UsPrivacy,
    /// A signal is present but cannot be decoded, or is invalid by its own specification.
    Undecodable,
    /// An applicable GPP section is not known to this release. The request has no identity, but this is no withdrawal:
    /// the visitor may have consented.
    UnknownSection,
    /// There is no signal, and the tenant's policy then denies identity.
    Policy,
}

impl Refusal {
    /// Stable machine-readable code for answers, metrics and logs.
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

    /// Whether the refusal withdraws the earlier permission of a known visitor.
    #[must_use]
    pub fn is_withdrawal(self) -> bool {
        !matches!(self, Self::Full | Self::None(Refusal::UnknownSection))
    }

    /// Combined permission of two sources of signals. A refusal wins, the first of two; a consent wins over the absence
    /// of a signal.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::None(Refusal::Policy), said) | (said, Self::None(Refusal::Policy)) => said,
            // A known refusal withdraws, an unknown section does not; so the known one wins.
            (Self::None(Refusal::UnknownSection), refused @ Self::None(_)) => refused,
            (refused @ Self::None(_), _) | (_, refused @ Self::None(_)) => refused,
            (Self::Full, Self::Full) => Self::Full,
        }
    }

    /// `full`, or the code of the refusal.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::None(refusal) => refusal.code(),
        }
    }
}

/// Verdict of one signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignalVerdict {
    /// The signal permits.
    Yes,
    /// The signal refuses.
    No,
    /// The signal is present but does not concern this visitor: no section applies.
    Silent,
    /// The signal is present but cannot be decoded.
    Unreadable,
    /// The signal belongs to a law that this release does not know.
    Unknown,
}

impl From<Option<bool>> for SignalVerdict {
    /// Converts a decoder's result; `None` means "cannot be decoded".
    fn from(answer: Option<bool>) -> Self {
        match answer {
            Some(true) => Self::Yes,
            Some(false) => Self::No,
            None => Self::Unreadable,
        }
    }
}

/// Decides whether a request may use identity.
///
/// Every signal that is present must permit. Without any signal, `tenant.no_signal` decides.
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
            None | Some(SignalVerdict::Silent) => {}
            Some(SignalVerdict::Yes) => permitted = true,
            Some(SignalVerdict::No) => return Permission::None(refusal),
            Some(SignalVerdict::Unreadable) => return Permission::None(Refusal::Undecodable),
            Some(SignalVerdict::Unknown) => is_unknown = true,
        }
    }
    if is_unknown {
        return Permission::None(Refusal::UnknownSection);
    }
    if permitted { Permission::Full } else { Permission::None(Refusal::Policy) }
}

/// Verdict of the GPP string on the applicable sections; `None` if no section applies, and the string is then not read.
/// Applicable sections without a string are unreadable or unknown.
fn gpp_word(signals: &Signals<'_>, tenant: &TenantConfig) -> Option<SignalVerdict> {
    let applicable = match signals.gpp_sid {
        // A page's CMP stub reports no ids before it knows them: all sections of the string are then read.
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

fn bounded(text: &str, read: impl Fn(&str) -> SignalVerdict) -> SignalVerdict {
    if text.is_empty() || text.len() > limits::CONSENT_BYTES { SignalVerdict::Unreadable } else { read(text) }
}

/// Value of a consent cookie without percent-encoding and surrounding quotes.
#[must_use]
pub fn cookie_text(value: &str) -> Cow<'_, str> {
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    if value.contains('%') { percent_decode_str(value).decode_utf8_lossy() } else { Cow::Borrowed(value) }
}

/// Section ids of a `__gpp_sid` cookie, separated by `,` or `_`. An entry that is no number becomes 0, which is no
/// section's id and therefore refuses. An empty text gives an empty list.
#[must_use]
pub fn section_ids(text: &str) -> Vec<i32> {
    text.split([',', '_'])
        .map(str::trim)
        .filter(|id| !id.is_empty())
        .take(gpp::SECTIONS + 1)
        .map(|id| id.parse().unwrap_or(0))
        .collect()
}
