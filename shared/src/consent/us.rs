//! The US sections of a GPP string, and the US Privacy string of before.
//!
//! Source: IAB Tech Lab, the "US National" and "US States" section specifications; "US Privacy String" v1.
//! A section permits when nothing in it opts out of sale, of sharing or of targeted advertising, and its GPC
//! segment is not set. Whether a notice was given is the publisher's affair and not read.

use iab_gpp::sections::us_common::OptOut;
use iab_gpp::sections::usnat::{Core, UsNat};
use iab_gpp::sections::uspv1::{Flag, UspV1};
use iab_gpp::sections::{
    usca::UsCa, usco::UsCo, usct::UsCt, usde::UsDe, usfl::UsFl, usia::UsIa, usmn::UsMn, usmt::UsMt, usne::UsNe,
    usnh::UsNh, usnj::UsNj, usor::UsOr, ustn::UsTn, ustx::UsTx, usut::UsUt, usva::UsVa,
};

use super::Word;
use super::bits::Bits;

/// Decodes a section and says whether neither sale nor the second field opts out, and GPC is not set. Every
/// state has a type of its own in `iab_gpp`, with the same field names.
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

/// The same for a section without a GPC segment. Its decoder would pass over any segment after the core, so
/// that one is refused here.
macro_rules! permits_without_gpc {
    ($text:expr, $section:ty) => {{
        if $text.contains('.') {
            return None;
        }
        let section: $section = $text.parse().ok()?;
        section.core.sale_opt_out != OptOut::OptedOut && section.core.targeted_advertising_opt_out != OptOut::OptedOut
    }};
}

/// Reads the national section (7) or a state's (8 to 23); `None` for any other id.
pub(super) fn section(id: u32, text: &str) -> Option<bool> {
    if !text.split('.').all(|segment| Bits::new(segment).is_some()) || has_undefined(text) {
        return None;
    }
    Some(match id {
        7 => return national(text),
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
        _ => return None,
    })
}

fn national(text: &str) -> Option<bool> {
    let section: UsNat = text.parse().ok()?;
    let opt_outs = match section.core {
        Core::V1(core) => [core.sale_opt_out, core.sharing_opt_out, core.targeted_advertising_opt_out],
        Core::V2(core) => [core.sale_opt_out, core.sharing_opt_out, core.targeted_advertising_opt_out],
        _ => return None,
    };
    Some(!opt_outs.contains(&OptOut::OptedOut) && section.gpc != Some(true))
}

/// Whether a core holds the value 3, which no field defines. After its version every field of a core has two
/// bits and stands for "not applicable", "yes" or "no"; `iab_gpp` takes 3 for "not applicable".
fn has_undefined(text: &str) -> bool {
    let core = text.split('.').next().and_then(Bits::new);
    core.is_none_or(|mut bits| {
        let _version = bits.take(6);
        std::iter::from_fn(|| bits.take(2)).any(|field| field == 3)
    })
}

/// Reads a US Privacy string: version, notice, opt-out of sale, service provider agreement. `1---` says that
/// the law does not apply.
pub(super) fn privacy(text: &str) -> Word {
    // The decoder does not look behind the fourth character.
    if text.len() != 4 {
        return Word::Unreadable;
    }
    match text.parse::<UspV1>().map(|string| string.opt_out_sale) {
        Ok(Flag::Yes) => Word::No,
        Ok(Flag::No) => Word::Yes,
        Ok(Flag::NotApplicable) => Word::Silent,
        Err(_) => Word::Unreadable,
    }
}
