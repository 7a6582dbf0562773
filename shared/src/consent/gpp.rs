//! Decoder for the Global Privacy Platform string: a header with section ids, then the sections.
//!
//! Source: IAB Tech Lab, "Global Privacy Platform String", version 1, and its section list.

use super::bits::BitReader;
use super::{SignalVerdict, tcf, us};
use crate::settings::config::TenantConfig;

/// Most sections of one string or one list of applicable sections. The specification defines 27; larger inputs are
/// refused.
pub(super) const SECTIONS: usize = 32;
/// Entry in the list of applicable sections for "no section applies" (GPP CMP API, `applicableSections`).
pub(super) const NONE_APPLIES: i32 = -1;

/// Type and version in the header, its first twelve bits.
const TYPE: u32 = 3;
const VERSION: u32 = 1;

/// Verdict of a string on its applicable sections; if these are not known, on all its sections. The verdict is
/// unreadable if an applicable section is missing or cannot be decoded. It is unknown if an applicable section is not
/// known to this release, even if the section is missing.
pub(super) fn gpp_word(text: &str, applicable: Option<&[i32]>, tenant: &TenantConfig) -> SignalVerdict {
    let Some(sections) = split_sections(text) else {
        return SignalVerdict::Unreadable;
    };
    let read = |(id, text): &(u32, &str)| section_word(*id, text, tenant);
    match applicable {
        Some(ids) => {
            applicable_word(ids, |wanted| sections.iter().find(|(id, _)| i64::from(*id) == i64::from(wanted)).map(read))
        }
        None => sections.iter().map(read).fold(SignalVerdict::Silent, combine_words),
    }
}

/// Verdict on the applicable sections if there is no string.
pub(super) fn word_without_string(applicable: &[i32]) -> SignalVerdict {
    applicable_word(applicable, |_| None)
}

/// Combined verdict on all applicable sections. `read` returns the verdict on one section, `None` if the string lacks
/// it.
fn applicable_word(ids: &[i32], read: impl Fn(i32) -> Option<SignalVerdict>) -> SignalVerdict {
    if ids.len() > SECTIONS {
        return SignalVerdict::Unreadable;
    }
    let applicable = ids.iter().copied().filter(|id| *id != NONE_APPLIES);
    applicable.map(|id| read(id).unwrap_or_else(|| missing_word(id))).fold(SignalVerdict::Silent, combine_words)
}

/// Verdict on an applicable section that the string lacks. Ids below 1 are invalid.
fn missing_word(id: i32) -> SignalVerdict {
    let is_unknown = id > 0 && !matches!(id, 2 | 5..=27);
    if is_unknown { SignalVerdict::Unknown } else { SignalVerdict::Unreadable }
}

/// Combines verdicts; all must permit. A refusal is strongest, then an unreadable signal, then an unknown law, then a
/// permission.
fn combine_words(one: SignalVerdict, other: SignalVerdict) -> SignalVerdict {
    match (one, other) {
        (SignalVerdict::No, _) | (_, SignalVerdict::No) => SignalVerdict::No,
        (SignalVerdict::Unreadable, _) | (_, SignalVerdict::Unreadable) => SignalVerdict::Unreadable,
        (SignalVerdict::Unknown, _) | (_, SignalVerdict::Unknown) => SignalVerdict::Unknown,
        (SignalVerdict::Yes, _) | (_, SignalVerdict::Yes) => SignalVerdict::Yes,
        (SignalVerdict::Silent, SignalVerdict::Silent) => SignalVerdict::Silent,
    }
}

fn section_word(id: u32, text: &str, tenant: &TenantConfig) -> SignalVerdict {
    match id {
        2 => tcf::european_consent(text, tenant).into(),
        5 => tcf::canadian_consent(text, tenant).into(),
        6 => us::us_privacy(text),
        7..=27 => us::us_section(id, text).into(),
        _ => SignalVerdict::Unknown,
    }
}

/// Splits a string into sections with their ids, in text order; `None` if the header does not fit the sections.
///
/// The ids are encoded as Range(Fibonacci): a number of items, each a single id or a group, given as the distance from
/// the previous id; a group adds its length. Ids therefore only grow and never repeat.
fn split_sections(text: &str) -> Option<Vec<(u32, &str)>> {
    let mut parts = text.split('~');
    let mut header = BitReader::new(parts.next()?)?;
    if header.take(6)? != TYPE || header.take(6)? != VERSION {
        return None;
    }
    let mut found = Vec::new();
    let mut last = 0;
    for _ in 0..header.take(12)? {
        let is_group = header.flag()?;
        let start = last + header.fibonacci()?;
        last = if is_group { start + header.fibonacci()? } else { start };
        for id in start..=last {
            if found.len() == SECTIONS {
                return None;
            }
            found.push((id, parts.next()?));
        }
    }
    parts.next().is_none().then_some(found)
}
