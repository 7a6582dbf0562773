//! The Global Privacy Platform's string: a header that names its sections, then the sections.
//!
//! Source: IAB Tech Lab, "Global Privacy Platform String", version 1, and its section list.

use super::bits::Bits;
use super::{Word, tcf, us};
use crate::config::Tenant;

/// Sections that one string holds or one list names. The specification knows 27; more than these are refused.
pub(super) const SECTIONS: usize = 32;
/// Among the applicable sections: none applies (GPP CMP API, `applicableSections`).
pub(super) const NONE_APPLIES: i32 = -1;

/// The header's type and version, its first twelve bits.
const TYPE: u32 = 3;
const VERSION: u32 = 1;

/// What a string says of the sections that apply, or of all it holds when it is not known which apply.
/// A section that applies and is missing or undecodable makes the string unreadable; one that this release does not know
/// makes it unknown.
pub(super) fn word(text: &str, applicable: Option<&[i32]>, tenant: &Tenant) -> Word {
    let Some(sections) = sections(text) else {
        return Word::Unreadable;
    };
    let read = |section: Option<&(u32, &str)>| match section {
        Some((id, text)) => section_word(*id, text, tenant),
        None => Word::Unreadable,
    };
    match applicable {
        Some(ids) if ids.len() > SECTIONS => Word::Unreadable,
        Some(ids) => ids
            .iter()
            .filter(|id| **id != NONE_APPLIES)
            .map(|wanted| read(sections.iter().find(|(id, _)| i64::from(*id) == i64::from(*wanted))))
            .fold(Word::Silent, together),
        None => sections.iter().map(|section| read(Some(section))).fold(Word::Silent, together),
    }
}

/// All must permit: a refusal stays, then what cannot be read, then a permission.
fn together(one: Word, other: Word) -> Word {
    match (one, other) {
        (Word::No, _) | (_, Word::No) => Word::No,
        (Word::Unreadable, _) | (_, Word::Unreadable) => Word::Unreadable,
        (Word::Unknown, _) | (_, Word::Unknown) => Word::Unknown,
        (Word::Yes, _) | (_, Word::Yes) => Word::Yes,
        (Word::Silent, Word::Silent) => Word::Silent,
    }
}

fn section_word(id: u32, text: &str, tenant: &Tenant) -> Word {
    match id {
        2 => tcf::european(text, tenant).into(),
        5 => tcf::canadian(text, tenant).into(),
        6 => us::privacy(text),
        7..=27 => us::section(id, text).into(),
        _ => Word::Unknown,
    }
}

/// The sections with their ids, in the order of the text; `None` if the header does not fit them.
///
/// The ids come as Range(Fibonacci): a count of items, each a single id or a group, by its distance from the
/// last id seen; a group adds its length. So ids only grow, and none comes twice.
fn sections(text: &str) -> Option<Vec<(u32, &str)>> {
    let mut parts = text.split('~');
    let mut header = Bits::new(parts.next()?)?;
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
