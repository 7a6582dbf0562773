//! Alternate ids of a request: those that are accepted, and those that are refused because they are not proven.

use std::borrow::Cow;
use std::collections::BTreeMap;

use causeway_shared::config::{Kind, ProofPolicy};
use causeway_shared::identity::Claim;
use causeway_shared::ids::AlternateId;
use causeway_shared::placeholder::is_placeholder;
use causeway_shared::{limits, proof};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::incoming::Incoming;
use crate::site::Site;

/// Values of the session cookie that are checked.
const PROOFS: usize = 4;

/// The `user` object of a body.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserBody<'a> {
    #[serde(borrow, default)]
    pub(crate) ids: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) proofs: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) attributes: Option<&'a RawValue>,
}

/// The ids of a request.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    pub(crate) taken: Vec<Claim>,
    /// Refused ids: the kind's name, and `unproven`, `unknown`, `empty`, `too_long` or `placeholder`.
    pub(crate) refused: Vec<(String, &'static str)>,
    /// Why a proof was refused, for the counters.
    pub(crate) fault: Option<&'static str>,
}

/// Reads the ids of a body, with their proofs from the body, the tenant's header or its session cookie. An id that is empty,
/// over its bound or a placeholder is refused, and costs no other.
pub(crate) fn take(incoming: &Incoming<'_>, user: &UserBody<'_>) -> Claims {
    let (site, now) = (&incoming.site, incoming.now);
    let mut claims = Claims::default();
    // Proven ids first: their visitors are read before those of other ids.
    for kind in site.tenant.kinds.iter().filter(|k| k.unique) {
        let said = user.ids.get(kind.name.as_str());
        if let Some(fault) = said.and_then(|said| fault_of(said)) {
            claims.refused.push((kind.name.clone(), fault));
            continue;
        }
        let token = user.proofs.get(kind.name.as_str()).map(Cow::as_ref);
        let token = token.or_else(|| carried(incoming));
        let proven = token.map(|token| proof::verify(token, &site.keys.proof, &site.id, now));
        match (said, proven) {
            (None, Some(Ok(proven))) => claims.take(site, kind, &proven.sub, true),
            (Some(said), Some(Ok(proven))) if *said == proven.sub => claims.take(site, kind, said, true),
            (Some(said), None) if site.tenant.member_proof == ProofPolicy::Trusted => {
                claims.take(site, kind, said, false);
            }
            (None, None) => {}
            (said, other) => {
                claims.fault = match other {
                    Some(Ok(_)) => Some("proof_of_another"),
                    Some(Err(error)) => Some(error.code()),
                    None => None,
                };
                if said.is_some() || user.proofs.contains_key(kind.name.as_str()) {
                    claims.refused.push((kind.name.clone(), "unproven"));
                }
            }
        }
    }
    for (name, value) in &user.ids {
        match site.tenant.kind(name) {
            None => claims.refused.push((name.to_string(), "unknown")),
            Some(kind) if !kind.unique => claims.take(site, kind, value, false),
            Some(_) => {}
        }
    }
    claims
}

/// Whether a person's data is shown and erased only with a proof of its member.
pub(crate) fn requires_proof(site: &Site) -> bool {
    site.tenant.member_proof == ProofPolicy::Required
}

/// Why a value is no alternate id.
fn fault_of(value: &str) -> Option<&'static str> {
    match value.len() {
        0 => Some("empty"),
        n if n > limits::ALTERNATE_ID_BYTES => Some("too_long"),
        _ => is_placeholder(value).then_some("placeholder"),
    }
}

impl Claims {
    /// The member that a proof in the request names.
    pub(crate) fn proven_member(&self) -> Option<&Claim> {
        self.taken.iter().find(|claim| claim.unique && claim.proven)
    }

    fn take(&mut self, site: &Site, kind: &Kind, value: &str, proven: bool) {
        if let Some(fault) = fault_of(value) {
            self.refused.push((kind.name.clone(), fault));
            return;
        }
        let mut hashes = site.keys.alternate.hash_alternate(kind.code(), value).into_iter();
        if let Some(hash) = hashes.next() {
            let id = AlternateId { kind: kind.code(), hash };
            self.taken.push(Claim { id, also: hashes.collect(), unique: kind.unique, proven });
        }
    }
}

/// The proof in the tenant's own header or session cookie. Of several cookie values, such as an old one of a longer
/// path, the first valid one counts.
fn carried<'a>(incoming: &'a Incoming<'_>) -> Option<&'a str> {
    let site = &incoming.site;
    let tenant = &site.tenant;
    let header = tenant.proof_header.as_deref().and_then(|name| incoming.request.extra(incoming.further_headers, name));
    header.or_else(|| {
        let name = tenant.proof_cookie.as_deref()?;
        let mut cookies = incoming.request.cookies(name).take(PROOFS);
        let first = cookies.next()?;
        let holds = |token: &&str| proof::verify(token, &site.keys.proof, &site.id, incoming.now).is_ok();
        if holds(&first) { Some(first) } else { cookies.find(holds).or(Some(first)) }
    })
}
