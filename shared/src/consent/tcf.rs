//! Decoders for the strings of IAB's Transparency and Consent Framework: TCF v2 of Europe and TCF v1 of Canada.
//!
//! Source: IAB Tech Lab, "Consent string and vendor list formats v2" (TCF 2.3) and "IAB Canada TCF Technical
//! Specification". A decoder returns `Some(true)` for consent, `Some(false)` for refusal, and `None` if the text is
//! invalid or cannot be decoded. Vendor sections are walked, never expanded: the length of the text bounds the work,
//! whatever ranges it contains.

use iab_gpp::sections::tcfcav1::TcfCaV1;
use iab_gpp::sections::tcfeuv2::TcfEuV2;

use super::bits::{BitReader, prefix};
use crate::settings::config::TenantConfig;

/// Bits of the European core before its first vendor section: Version to PublisherCC.
const EUROPEAN_HEAD: usize = 213;
/// Bits of the Canadian core before its first vendor section: Version to PurposesImpliedConsent.
const CANADIAN_HEAD: usize = 199;
/// Zero characters that complete a head to a whole core, with empty vendor sections and restrictions.
const EMPTY_TAIL: usize = 8;
/// First policy version (TCF 2.3) whose strings must name the disclosed vendors.
const POLICY_DISCLOSES: u8 = 5;
/// Time from which strings of every policy version must name the disclosed vendors: 1 March 2026, in seconds since the
/// Unix epoch. TCF 2.3 set the end of February 2026 as the deadline.
const DISCLOSED_SINCE: u64 = 1_772_323_200;
/// Restriction type "require consent". It changes nothing here, because only consent is accepted anyway.
const REQUIRE_CONSENT: u32 = 1;
/// Purpose 1 is not used in Canada: its bit is never set in Canadian strings.
const UNUSED_IN_CANADA: u8 = 1;

/// Reads a TC string of version 2. Every purpose of the tenant must have *consent*; legitimate interest is not enough.
/// With `tcf_vendor`, that vendor must have consent, must have been disclosed, and must not be restricted by the
/// publisher for one of these purposes.
pub(super) fn european_consent(text: &str, tenant: &TenantConfig) -> Option<bool> {
    let mut segments = text.split('.');
    let core = segments.next()?;
    let mut bits = BitReader::new(core)?;
    let head: TcfEuV2 = prefix(core, EUROPEAN_HEAD, EMPTY_TAIL)?.parse().ok()?;
    // "When a Vendor encounters a TC String with IsServiceSpecific=0 then it is considered invalid."
    if !head.core.is_service_specific {
        return None;
    }
    bits.skip(EUROPEAN_HEAD)?;
    let consented = vendor_consent(&mut bits, tenant.tcf_vendor)?;
    let _legitimate_interest = vendor_consent(&mut bits, tenant.tcf_vendor)?;
    let is_restricted = publisher_restricts(&mut bits, tenant)?;
    let disclosed = vendor_disclosed(segments, tenant.tcf_vendor)?;
    let must_disclose = head.core.policy_version >= POLICY_DISCLOSES || head.core.created >= DISCLOSED_SINCE;
    let vendor_agrees = match (tenant.tcf_vendor, disclosed) {
        (_, None) if must_disclose => return None,
        (None, _) => true,
        (Some(_), None) => consented && !is_restricted,
        (Some(_), Some(disclosed)) => {
            let disclosed = disclosed || !must_disclose;
            consented && disclosed && !is_restricted
        }
    };
    let purposes = &tenant.tcf_purposes;
    let all = !purposes.is_empty() && purposes.iter().all(|p| head.core.purpose_consents.contains(&u16::from(*p)));
    Some(all && vendor_agrees)
}

/// Reads a Canadian string. Every purpose of the tenant that Canada uses must have express or implied consent; with
/// `tcf_vendor`, that vendor must have one of the two.
///
/// Vendor sections are read in the form that IAB's own libraries write, which is the European one; the specification's
/// table differs. There is no such practice for publisher restrictions: with `tcf_vendor`, a string with restrictions
/// cannot be decoded.
pub(super) fn canadian_consent(text: &str, tenant: &TenantConfig) -> Option<bool> {
    let core = text.split('.').next()?;
    let mut bits = BitReader::new(core)?;
    if !text.split('.').all(|segment| BitReader::new(segment).is_some()) {
        return None;
    }
    let head: TcfCaV1 = prefix(core, CANADIAN_HEAD, EMPTY_TAIL)?.parse().ok()?;
    bits.skip(CANADIAN_HEAD)?;
    let express = vendor_consent(&mut bits, tenant.tcf_vendor)?;
    let implied = vendor_consent(&mut bits, tenant.tcf_vendor)?;
    let restrictions = bits.take(12).unwrap_or(0);
    if tenant.tcf_vendor.is_some() && restrictions > 0 {
        return None;
    }
    let mut purposes = tenant.tcf_purposes.iter().filter(|p| **p != UNUSED_IN_CANADA).map(|p| u16::from(*p)).peekable();
    let any = purposes.peek().is_some();
    let all = purposes
        .all(|p| head.core.purpose_express_consents.contains(&p) || head.core.purpose_implied_consents.contains(&p));
    let vendor_agrees = tenant.tcf_vendor.is_none() || express || implied;
    Some(any && all && vendor_agrees)
}

/// Reads past one vendor section (MaxVendorId, IsRangeEncoding, then a bit field or ranges) and returns whether it
/// names the vendor.
fn vendor_consent(bits: &mut BitReader<'_>, vendor: Option<u16>) -> Option<bool> {
    let greatest = u16::try_from(bits.take(16)?).ok()?;
    if bits.flag()? {
        return vendor_in_ranges(bits, vendor);
    }
    let mut field = *bits;
    bits.skip(usize::from(greatest))?;
    match vendor {
        Some(vendor) if (1..=greatest).contains(&vendor) => {
            field.skip(usize::from(vendor) - 1)?;
            field.flag()
        }
        _ => Some(false),
    }
}

/// Reads past a list of ranges (NumEntries, then for each IsARange, StartOrOnlyVendorId and maybe EndVendorId) and
/// returns whether one of them names the vendor. Ranges may come in any order; an inverted range or vendor 0 cannot be
/// decoded.
fn vendor_in_ranges(bits: &mut BitReader<'_>, vendor: Option<u16>) -> Option<bool> {
    let mut named = false;
    for _ in 0..bits.take(12)? {
        let is_range = bits.flag()?;
        let start = bits.take(16)?;
        let end = if is_range { bits.take(16)? } else { start };
        if start == 0 || start > end {
            return None;
        }
        named |= vendor.is_some_and(|v| (start..=end).contains(&u32::from(v)));
    }
    Some(named)
}

/// Reads past the publisher restrictions and returns whether one of them excludes consent of the vendor for a purpose
/// of the tenant: the purpose is not allowed, needs another legal basis, or the type is undefined.
fn publisher_restricts(bits: &mut BitReader<'_>, tenant: &TenantConfig) -> Option<bool> {
    let mut is_restricted = false;
    for _ in 0..bits.take(12)? {
        let purpose = bits.take(6)?;
        let kind = bits.take(2)?;
        let named = vendor_in_ranges(bits, tenant.tcf_vendor)?;
        let is_needed = tenant.tcf_purposes.iter().any(|p| u32::from(*p) == purpose);
        is_restricted |= named && is_needed && kind != REQUIRE_CONSENT;
    }
    Some(is_restricted)
}

/// Reads the segments after the core. The inner option tells whether the vendor was disclosed, `None` without a segment
/// of disclosed vendors. The outer option is `None` for an unknown, repeated or truncated segment.
fn vendor_disclosed<'a>(segments: impl Iterator<Item = &'a str>, vendor: Option<u16>) -> Option<Option<bool>> {
    let mut disclosed = None;
    let mut seen = 0u8;
    for segment in segments {
        let mut bits = BitReader::new(segment)?;
        let kind = bits.take(3)?;
        if seen & 1 << kind != 0 {
            return None;
        }
        seen |= 1 << kind;
        match kind {
            1 => disclosed = Some(vendor_consent(&mut bits, vendor)?),
            // Allowed vendors, not used since TCF 2.3.
            2 => drop(vendor_consent(&mut bits, vendor)?),
            // The publisher's own purposes: 24 consents, 24 legitimate interests, then custom purposes.
            3 => {
                bits.skip(48)?;
                let custom = usize::try_from(bits.take(6)?).ok()?;
                bits.skip(2 * custom)?;
            }
            _ => return None,
        }
    }
    Some(disclosed)
}
