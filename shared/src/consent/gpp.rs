//! The Global Privacy Platform's string: a header that names its sections, then the sections.
//!
//! Source: IAB Tech Lab, "Global Privacy Platform String", version 1, and its section list.

use super::bits::BitReader;
use super::{Word, tcf, us};
use crate::settings::config::TenantConfig;

/// Sections that one string holds or one list names. The specification knows 27; more than these are refused.
pub(super) const SECTIONS: usize = 32;
/// Among the applicable sections: none applies (GPP CMP API, `applicableSections`).
pub(super) const NONE_APPLIES: i32 = -1;

/// The header's type and version, its first twelve bits.
const TYPE: u32 = 3;
const VERSION: u32 = 1;

/// What a string says of the sections that apply, or of all it holds when it is not known which apply.
/// A section that applies and is missing or undecodable makes the string unreadable; one that this release does not know
/// makes it unknown, also where it is missing.
pub(super) fn gpp_word(text: &str, applicable: Option<&[i32]>, tenant: &TenantConfig) -> Word {
    let Some(sections) = split_sections(text) else {
        return Word::Unreadable;
    };
    let read = |(id, text): &(u32, &str)| section_word(*id, text, tenant);
    match applicable {
        Some(ids) => {
            applicable_word(ids, |wanted| sections.iter().find(|(id, _)| i64::from(*id) == i64::from(wanted)).map(read))
        }
        None => sections.iter().map(read).fold(Word::Silent, combine_words),
    }
}

/// What applicable sections say without a string.
pub(super) fn word_without_string(applicable: &[i32]) -> Word {
    applicable_word(applicable, |_| None)
}

/// What all applicable sections say together; `read` returns what one says, `None` where the string lacks it.
fn applicable_word(ids: &[i32], read: impl Fn(i32) -> Option<Word>) -> Word {
    if ids.len() > SECTIONS {
        return Word::Unreadable;
    }
    let applicable = ids.iter().copied().filter(|id| *id != NONE_APPLIES);
    applicable.map(|id| read(id).unwrap_or_else(|| missing_word(id))).fold(Word::Silent, combine_words)
}

/// What an applicable section says that the string lacks. No section has an id below 1.
fn missing_word(id: i32) -> Word {
    let is_unknown = id > 0 && !matches!(id, 2 | 5..=27);
    if is_unknown { Word::Unknown } else { Word::Unreadable }
}

/// All must permit: a refusal stays, then what cannot be read, then a permission.
fn combine_words(one: Word, other: Word) -> Word {
    match (one, other) {
        (Word::No, _) | (_, Word::No) => Word::No,
        (Word::Unreadable, _) | (_, Word::Unreadable) => Word::Unreadable,
        (Word::Unknown, _) | (_, Word::Unknown) => Word::Unknown,
        (Word::Yes, _) | (_, Word::Yes) => Word::Yes,
        (Word::Silent, Word::Silent) => Word::Silent,
    }
}

fn section_word(id: u32, text: &str, tenant: &TenantConfig) -> Word {
    match id {
        2 => tcf::european_consent(text, tenant).into(),
        5 => tcf::canadian_consent(text, tenant).into(),
        6 => us::us_privacy(text),
        7..=27 => us::us_section(id, text).into(),
        _ => Word::Unknown,
    }
}

/// The sections with their ids, in the order of the text; `None` if the header does not fit them.
///
/// The ids come as Range(Fibonacci): a count of items, each a single id or a group, by its distance from the
/// last id seen; a group adds its length. So ids only grow, and none comes twice.
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
