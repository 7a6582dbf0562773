//! Ad tokens: the signed content of the addresses under `/v1/i/` and `/v1/c/`, one per placed ad. They are signed like
//! cookies but under a name of their own, so that a cookie never passes for a token. The action counts for the visitor
//! in the token, even if the browser has switched to another visitor since.
//!
//! The advertiser's script and logs can read an address, so it must not reveal the visitor. The visitor's id is masked
//! with bytes derived from the insertion, which is random; two addresses of one visitor therefore have nothing in
//! common.

use crate::base::ids::{InsertionId, Millis, TenantId, VisitorId};
use crate::base::limits;
use crate::base::packed::{self, PackedReader};
use crate::facts::actions::{AdEntity, ViewType};
use crate::keys::cookie;
use crate::keys::key_ring::{KeyRing, RingKey};

const NAME: &str = "ad";
const FORM: u64 = 2;
/// The form of the previous release, with an unmasked visitor.
const CLEAR: u64 = 1;

/// One placed ad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdToken {
    /// The visitor that the ad was placed in front of.
    pub visitor: VisitorId,
    /// The insertion.
    pub insertion: InsertionId,
    /// The ad with its ad group, campaign and advertiser.
    pub entity: AdEntity,
    /// The view type of the placement.
    pub view_type: ViewType,
    /// Time of the placement, in milliseconds since the Unix epoch.
    pub placed: Millis,
    /// Whether its impression counts only if an object confirms it, whatever the catalogue says at that time.
    pub strict: bool,
}

/// The reason why a token counts no action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token is malformed or not signed by this tenant's keys.
    #[error("not an ad token of this tenant")]
    Forged,
    /// The ad was placed longer ago than [`limits::TOKEN_LIFE_MS`]. A late click is still redirected.
    #[error("the ad was placed too long ago: its clicks and impressions no longer count")]
    Late(AdToken),
}

impl TokenError {
    /// A permanent name for metrics.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Forged => "token_forged",
            Self::Late(_) => "token_late",
        }
    }
}

/// Signs a token. It consists of letters, digits, `-`, `_` and `.`. `None` only for a ring without an active key.
#[must_use]
pub fn seal_token(ring: &KeyRing, tenant: &TenantId, token: &AdToken) -> Option<String> {
    let AdToken { visitor, insertion, entity, view_type, placed, strict } = token;
    let mut bytes = Vec::with_capacity(64);
    packed::put(&mut bytes, FORM);
    bytes.extend(mask_bytes(ring.active()?, tenant, *insertion, *visitor.as_bytes()));
    bytes.extend_from_slice(&insertion.0);
    let AdEntity { ad, ad_group, campaign, advertiser } = *entity;
    [ad, ad_group, campaign, advertiser].into_iter().for_each(|code| packed::put(&mut bytes, code.into()));
    packed::put(&mut bytes, view_type.0.into());
    packed::put(&mut bytes, *placed);
    // Last, because an older release stops reading before this field.
    if *strict {
        packed::put(&mut bytes, 1);
    }
    cookie::seal_cookie(ring, NAME, tenant, &bytes)
}

/// Verifies and decodes a token from an address.
///
/// # Errors
/// [`TokenError::Forged`] for an invalid token, [`TokenError::Late`] for an old one.
pub fn open(ring: &KeyRing, tenant: &TenantId, text: &str, now: Millis) -> Result<AdToken, TokenError> {
    let opened = cookie::open(ring, NAME, tenant, text).map_err(|_| TokenError::Forged)?;
    let unmask = |insertion, bytes| Some(mask_bytes(ring.by_id(opened.kid)?, tenant, insertion, bytes));
    let token = read(&mut PackedReader(&opened.payload), unmask).ok_or(TokenError::Forged)?;
    if token.placed.saturating_add(limits::TOKEN_LIFE_MS) < now { Err(TokenError::Late(token)) } else { Ok(token) }
}

/// Masks the visitor's bytes with bytes derived from an insertion, or unmasks them.
fn mask_bytes(key: &RingKey, tenant: &TenantId, insertion: InsertionId, mut bytes: [u8; 16]) -> [u8; 16] {
    let mask = key.mac(&[b"ad visitor", tenant.as_str().as_bytes(), &insertion.0]);
    bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    bytes
}

fn read(packed: &mut PackedReader<'_>, unmask: impl Fn(InsertionId, [u8; 16]) -> Option<[u8; 16]>) -> Option<AdToken> {
    let form = packed.number()?;
    let mut sixteen = || <[u8; 16]>::try_from(packed.take(16)?).ok();
    let (visitor, insertion) = (sixteen()?, InsertionId(sixteen()?));
    let visitor = match form {
        FORM => unmask(insertion, visitor)?,
        CLEAR => visitor,
        _ => return None,
    };
    let visitor = VisitorId::from_bytes(visitor).ok()?;
    let mut code = || u32::try_from(packed.number()?).ok();
    let entity = AdEntity { ad: code()?, ad_group: code()?, campaign: code()?, advertiser: code()? };
    let view_type = ViewType(u8::try_from(packed.number()?).ok()?);
    let placed = packed.number()?;
    Some(AdToken { visitor, insertion, entity, view_type, placed, strict: packed.number().is_some() })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::keys::key_ring::{KeyStage, RingKey};

    const NOW: Millis = 1_800_000_000_000;

    fn ring(secret: u8) -> KeyRing {
        KeyRing(vec![RingKey { id: 1, stage: KeyStage::Active, secret: [secret; 32].into() }])
    }

    fn token() -> AdToken {
        AdToken {
            visitor: VisitorId::mint(NOW, [1; 10]),
            insertion: InsertionId([2; 16]),
            entity: AdEntity { ad: 70_000, ad_group: 3, campaign: 2, advertiser: 1 },
            view_type: ViewType(4),
            placed: NOW,
            strict: false,
        }
    }

    #[test]
    fn a_token_opens_for_its_tenant_within_its_life() {
        let [own, other]: [TenantId; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        let text = seal_token(&ring(1), &own, &token()).unwrap();
        assert!(text.len() < 120, "{text}");
        assert_eq!(open(&ring(1), &own, &text, NOW + limits::TOKEN_LIFE_MS), Ok(token()));
        assert_eq!(open(&ring(1), &own, &text, NOW + limits::TOKEN_LIFE_MS + 1), Err(TokenError::Late(token())));
        assert_eq!(open(&ring(1), &other, &text, NOW), Err(TokenError::Forged));
        assert_eq!(open(&ring(2), &own, &text, NOW), Err(TokenError::Forged));
        let strict = AdToken { strict: true, ..token() };
        assert_eq!(open(&ring(1), &own, &seal_token(&ring(1), &own, &strict).unwrap(), NOW), Ok(strict));
    }

    #[test]
    fn an_address_does_not_say_whose_it_is() {
        let tenant: TenantId = "a".parse().unwrap();
        let visitor = token().visitor.as_bytes().to_owned();
        let payloads = [2, 3].map(|insertion| {
            let token = AdToken { insertion: InsertionId([insertion; 16]), ..token() };
            let text = seal_token(&ring(1), &tenant, &token).unwrap();
            assert_eq!(open(&ring(1), &tenant, &text, NOW), Ok(token));
            cookie::open(&ring(1), NAME, &tenant, &text).unwrap().payload
        });
        for payload in &payloads {
            assert!(!payload.windows(6).any(|part| visitor.windows(6).any(|own| own == part)), "{payload:?}");
        }
        let [one, other] = payloads.map(|payload| payload.get(1..17).unwrap().to_vec());
        assert!(one.iter().zip(&other).filter(|(one, other)| one == other).count() < 6, "{one:?} {other:?}");
    }

    #[test]
    fn a_token_of_the_release_before_opens_too() {
        let tenant: TenantId = "a".parse().unwrap();
        let text = seal_token(&ring(1), &tenant, &token()).unwrap();
        let mut payload = cookie::open(&ring(1), NAME, &tenant, &text).unwrap().payload;
        payload.splice(..17, [&[1][..], token().visitor.as_bytes()].concat());
        let clear = |form| {
            let payload = [&[form], payload.get(1..).unwrap()].concat();
            open(&ring(1), &tenant, &cookie::seal_cookie(&ring(1), NAME, &tenant, &payload).unwrap(), NOW)
        };
        assert_eq!([clear(1), clear(3)], [Ok(token()), Err(TokenError::Forged)]);
    }

    #[test]
    fn a_cookie_is_no_token_and_no_changed_character_passes() {
        let tenant: TenantId = "a".parse().unwrap();
        let text = seal_token(&ring(1), &tenant, &token()).unwrap();
        let opened = cookie::open(&ring(1), NAME, &tenant, &text).unwrap();
        let cookie = cookie::seal_cookie(&ring(1), cookie::IDENTITY, &tenant, &opened.payload).unwrap();
        assert_eq!(open(&ring(1), &tenant, &cookie, NOW), Err(TokenError::Forged));
        for place in 0..text.len() {
            let changed: String = text
                .chars()
                .enumerate()
                .map(|(i, c)| if i == place { if c == 'A' { 'B' } else { 'A' } } else { c })
                .collect();
            assert_eq!(open(&ring(1), &tenant, &changed, NOW), Err(TokenError::Forged), "{changed}");
        }
    }
}
