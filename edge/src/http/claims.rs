//! Alternate ids of a request: the accepted ones, and the ones that are refused because their proof is missing or
//! invalid.

use std::borrow::Cow;
use std::collections::BTreeMap;

use causeway_shared::base::ids::AlternateId;
use causeway_shared::base::limits;
use causeway_shared::base::placeholder::is_placeholder;
use causeway_shared::identity::IdClaim;
use causeway_shared::keys::proof::{self, ProofError};
use causeway_shared::settings::config::{IdKind, ProofPolicy};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::incoming::TenantRequest;
use crate::site::Site;

/// Most different values of the session cookie that are verified. With more values the proof is ambiguous, because an
/// unverified value may name another member.
const PROOFS: usize = 4;
/// The fault code of session cookies that name different members.
const AMBIGUOUS_PROOF: &str = "proof_ambiguous";

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
pub(crate) struct RequestClaims {
    pub(crate) taken: Vec<IdClaim>,
    /// Refused ids: the kind's name, and `unproven`, `unknown`, `empty`, `too_long` or `placeholder`.
    pub(crate) refused: Vec<(String, &'static str)>,
    /// The reason why a proof was refused, for the counters.
    pub(crate) fault: Option<&'static str>,
}

/// Reads the ids of a body, with their proofs from the body, the tenant's header or its session cookie. An id that is
/// empty, too long or a placeholder is refused without affecting others.
pub(crate) fn take_claims(incoming: &TenantRequest<'_>, user: &UserBody<'_>) -> RequestClaims {
    let site = &incoming.site;
    let mut claims = RequestClaims::default();
    // Proven ids first: their visitors are read before those of other ids.
    for kind in site.tenant.kinds.iter().filter(|k| k.unique) {
        let claimed = user.ids.get(kind.name.as_str());
        if let Some(fault) = claimed.and_then(|claimed| fault_of(claimed)) {
            claims.refused.push((kind.name.clone(), fault));
            continue;
        }
        let token = user.proofs.get(kind.name.as_str()).map(Cow::as_ref);
        let proven = token.map(|token| verify_proof(incoming, token)).or_else(|| verify_carried_proof(incoming));
        match (claimed, proven) {
            (None, Some(Ok(proven))) => claims.take(site, kind, &proven.sub, true),
            (Some(claimed), Some(Ok(proven))) if *claimed == proven.sub => claims.take(site, kind, claimed, true),
            (Some(claimed), None) if site.tenant.member_proof == ProofPolicy::Trusted => {
                claims.take(site, kind, claimed, false);
            }
            (None, None) => {}
            (claimed, other) => {
                claims.fault = match other {
                    Some(Ok(_)) => Some("proof_of_another"),
                    Some(Err(fault)) => Some(fault),
                    None => None,
                };
                if claimed.is_some() || user.proofs.contains_key(kind.name.as_str()) {
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

/// The reason why a value is not an alternate id; `None` for a valid one.
fn fault_of(value: &str) -> Option<&'static str> {
    match value.len() {
        0 => Some("empty"),
        n if n > limits::ALTERNATE_ID_BYTES => Some("too_long"),
        _ => is_placeholder(value).then_some("placeholder"),
    }
}

impl RequestClaims {
    /// The member that a proof in the request names.
    pub(crate) fn proven_member(&self) -> Option<&IdClaim> {
        self.taken.iter().find(|claim| claim.unique && claim.proven)
    }

    fn take(&mut self, site: &Site, kind: &IdKind, value: &str, proven: bool) {
        if let Some(fault) = fault_of(value) {
            self.refused.push((kind.name.clone(), fault));
            return;
        }
        let mut hashes = site.keys.alternate.hash_alternate(kind.code(), value).into_iter();
        if let Some(hash) = hashes.next() {
            let id = AlternateId { kind: kind.code(), hash };
            self.taken.push(IdClaim { id, also: hashes.collect(), unique: kind.unique, proven });
        }
    }
}

/// The claims of a proof, or the fault code of an invalid one.
type VerifiedProof = Result<proof::ProofClaims, &'static str>;

fn verify_proof(incoming: &TenantRequest<'_>, token: &str) -> VerifiedProof {
    let site = &incoming.site;
    proof::verify_proof(token, &site.keys.proof, &site.id, incoming.now).map_err(ProofError::code)
}

/// The proof in the tenant's own header or session cookie. One valid cookie value counts although others are invalid,
/// such as an old one of a longer path. Valid values of different members prove none, because any host of the same
/// domain can set a cookie with a valid proof of its own member.
fn verify_carried_proof(incoming: &TenantRequest<'_>) -> Option<VerifiedProof> {
    let tenant = &incoming.site.tenant;
    let header = tenant.proof_header.as_deref().and_then(|name| incoming.request.extra(incoming.further_headers, name));
    if let Some(token) = header {
        return Some(verify_proof(incoming, token));
    }
    let mut tokens = Vec::with_capacity(PROOFS);
    for token in incoming.request.cookies(tenant.proof_cookie.as_deref()?) {
        if tokens.contains(&token) {
            continue;
        }
        if tokens.len() == PROOFS {
            return Some(Err(AMBIGUOUS_PROOF));
        }
        tokens.push(token);
    }
    let mut proofs: Vec<_> = tokens.into_iter().map(|token| verify_proof(incoming, token)).collect();
    let mut subjects = proofs.iter().flatten().map(|proof| &proof.sub);
    let subject = subjects.next();
    if subjects.any(|other| Some(other) != subject) {
        return Some(Err(AMBIGUOUS_PROOF));
    }
    let counting = proofs.iter().position(Result::is_ok).unwrap_or_default();
    (counting < proofs.len()).then(|| proofs.swap_remove(counting))
}
