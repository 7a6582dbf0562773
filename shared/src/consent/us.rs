//! Decoders for the US sections of a GPP string, and for the older US Privacy string.
//!
//! Source: IAB Tech Lab, the "US National" and "US States" section specifications; "US Privacy String" v1. A section
//! permits if it does not opt out of sale, of sharing or of targeted advertising, does not withhold a consent for a
//! known child, and its GPC segment is not set. Notices to the visitor are the publisher's responsibility and are not
//! read.

use std::ops::Range;

use iab_gpp::sections::us_common::OptOut;
use iab_gpp::sections::usnat::{Core, UsNat};
use iab_gpp::sections::uspv1::{Flag, UspV1};
use iab_gpp::sections::{
    usca::UsCa, usco::UsCo, usct::UsCt, usde::UsDe, usfl::UsFl, usia::UsIa, usmn::UsMn, usmt::UsMt, usne::UsNe,
    usnh::UsNh, usnj::UsNj, usor::UsOr, ustn::UsTn, ustx::UsTx, usut::UsUt, usva::UsVa,
};

use super::SignalVerdict;
use super::bits::BitReader;

/// Decodes a section and returns whether neither sale nor the second field opts out and GPC is not set. In `iab_gpp`
/// every state has its own type, with the same field names.
macro_rules! permits {
    ($text:expr, $section:ty) => {
        permits!($text, $section, targeted_advertising_opt_out)
    };
    ($text:expr, $section:ty, $second:ident) => {{
        let section: $section = $text.parse().ok()?;
        let core = section.core;
        core.sale_opt_out != OptOut::OptedOut && core.$second != OptOut::OptedOut && section.gpc != Some(true)
    }};
}

/// Like `permits!`, for a section without a GPC segment. The decoder ignores segments after the core, so that they are
/// refused here.
macro_rules! permits_without_gpc {
    ($text:expr, $section:ty) => {{
        if $text.contains('.') {
            return None;
        }
        let section: $section = $text.parse().ok()?;
        section.core.sale_opt_out != OptOut::OptedOut && section.core.targeted_advertising_opt_out != OptOut::OptedOut
    }};
}

/// Reads the national section (7) or a state's section (8 to 27); `None` for any other id.
pub(super) fn us_section(id: u32, text: &str) -> Option<bool> {
    if !text.split('.').all(|segment| BitReader::new(segment).is_some()) {
        return None;
    }
    let (version, fields) = core_fields(text)?;
    // No field defines the value 3; `iab_gpp` reads it as "not applicable".
    if fields.contains(&3) {
        return None;
    }
    let withheld = fields.get(child_fields(id, version)).is_some_and(|consents| consents.contains(&1));
    let permits = match id {
        7 => national_section(text)?,
        8 => permits!(text, UsCa, sharing_opt_out),
        9 => permits_without_gpc!(text, UsVa),
        10 => permits!(text, UsCo),
        11 => permits_without_gpc!(text, UsUt),
        12 => permits!(text, UsCt),
        13 => permits_without_gpc!(text, UsFl),
        14 => permits!(text, UsMt),
        15 => permits!(text, UsOr),
        16 => permits!(text, UsTx),
        17 => permits!(text, UsDe),
        18 => permits!(text, UsIa),
        19 => permits!(text, UsNe),
        20 => permits!(text, UsNh),
        21 => permits!(text, UsNj),
        22 => permits!(text, UsTn),
        23 => permits!(text, UsMn),
        24 => maryland_section(version, &fields, text)?,
        25..=27 => permits_targeting(version, &fields, text)?,
        _ => return None,
    };
    Some(permits && !withheld)
}

/// The fields that opt out of sale and of targeted advertising in sections 24 to 27, which `iab_gpp` does not know.
const OPT_OUTS: Range<usize> = 5..7;
/// Value of a field that opts out.
const OPTED_OUT: u32 = 1;

/// Reads Indiana, Kentucky or Rhode Island. Their second segment holds sensitive data and is not read.
fn permits_targeting(version: u32, fields: &[u32], text: &str) -> Option<bool> {
    let is_whole = version == 1 && fields.len() >= 9 && text.split('.').count() <= 2;
    is_whole.then(|| permits_opt_outs(fields)).flatten()
}

/// Reads Maryland. Its second segment has type 1 and holds the GPC flag.
fn maryland_section(version: u32, fields: &[u32], text: &str) -> Option<bool> {
    let mut segments = text.split('.').skip(1);
    let gpc = match segments.next().map(BitReader::new) {
        None => false,
        Some(bits) => {
            let mut bits = bits.filter(|_| segments.next().is_none())?;
            if bits.take(2)? != 1 {
                return None;
            }
            bits.flag()?
        }
    };
    let is_whole = version == 1 && fields.len() >= 8;
    Some(is_whole.then(|| permits_opt_outs(fields)).flatten()? && !gpc)
}

fn permits_opt_outs(fields: &[u32]) -> Option<bool> {
    Some(!fields.get(OPT_OUTS)?.contains(&OPTED_OUT))
}

fn national_section(text: &str) -> Option<bool> {
    let section: UsNat = text.parse().ok()?;
    let opt_outs = match section.core {
        Core::V1(core) => [core.sale_opt_out, core.sharing_opt_out, core.targeted_advertising_opt_out],
        Core::V2(core) => [core.sale_opt_out, core.sharing_opt_out, core.targeted_advertising_opt_out],
        _ => return None,
    };
    Some(!opt_outs.contains(&OptOut::OptedOut) && section.gpc != Some(true))
}

/// Version and fields of a section's core. After the version, each field has two bits: "not applicable", "yes" or "no".
fn core_fields(text: &str) -> Option<(u32, Vec<u32>)> {
    let mut bits = BitReader::new(text.split('.').next()?)?;
    let version = bits.take(6)?;
    Some((version, std::iter::from_fn(|| bits.take(2)).collect()))
}

/// Fields of a core that are `KnownChildSensitiveDataConsents`.
fn child_fields(id: u32, version: u32) -> Range<usize> {
    match (id, version) {
        (7, 1) => 21..23,
        (7, _) => 25..28,
        (8, _) => 14..16,
        (10, _) => 12..13,
        (11 | 18, _) => 14..15,
        (12 | 13 | 14 | 20, _) => 13..16,
        (15, _) => 16..19,
        (17, _) => 14..19,
        (21, _) => 15..20,
        (24, _) => 0..0,
        (25..=27, _) => 7..8,
        _ => 13..14,
    }
}

/// Reads a US Privacy string: version, notice, opt-out of sale, service provider agreement. `1---` means that the law
/// does not apply.
pub(super) fn us_privacy(text: &str) -> SignalVerdict {
    // The decoder ignores everything after the fourth character.
    if text.len() != 4 {
        return SignalVerdict::Unreadable;
    }
    match text.parse::<UspV1>().map(|string| string.opt_out_sale) {
        Ok(Flag::Yes) => SignalVerdict::No,
        Ok(Flag::No) => SignalVerdict::Yes,
        Ok(Flag::NotApplicable) => SignalVerdict::Silent,
        Err(_) => SignalVerdict::Unreadable,
    }
}
