//! Alternate ids that a request brings: which are taken, and which are not proven.

use std::borrow::Cow;
use std::collections::BTreeMap;

use causeway_shared::config::{Kind, ProofPolicy};
use causeway_shared::identity::Claim;
use causeway_shared::ids::AlternateId;
use causeway_shared::{limits, proof};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::engine::{Incoming, Site};

/// Session cookies that are looked at.
const PROOFS: usize = 4;

/// The `user` object of a body.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct UserBody<'a> {
    #[serde(borrow, default)]
    pub(crate) ids: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) proofs: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) attributes: Option<&'a RawValue>,
}

/// The ids taken, and the unique kind's answer when its id was not.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    pub(crate) taken: Vec<Claim>,
    /// The kind's name, and why: `unproven` or `unknown`.
    pub(crate) refused: Vec<(String, &'static str)>,
    /// Whether a proof, not the page's word, is in this request.
    pub(crate) proven: bool,
    /// Why a proof did not hold, for the metrics.
    pub(crate) fault: Option<&'static str>,
}

/// An id that is longer than any.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong(pub(crate) String);

/// Takes the ids of a body, with their proofs from the body, the tenant's header or its session cookie.
///
/// # Errors
/// The name of an id over its bound, or empty.
pub(crate) fn take(incoming: &Incoming<'_>, user: &UserBody<'_>) -> Result<Claims, TooLong> {
    let (site, now) = (&incoming.site, incoming.now);
    let mut claims = Claims::default();
    for (name, value) in &user.ids {
        if value.is_empty() || value.len() > limits::ALTERNATE_ID_BYTES {
            return Err(TooLong(format!("user.ids.{name}")));
        }
    }
    // A proof first: whom it ties is read, and waited for, before whom other ids do.
    for kind in site.tenant.kinds.iter().filter(|k| k.unique) {
        let said = user.ids.get(kind.name.as_str());
        let token = user.proofs.get(kind.name.as_str()).map(Cow::as_ref);
        let token = token.or_else(|| carried(incoming));
        let proven = token.map(|token| proof::verify(token, &site.keys.proof, &site.id, now));
        match (said, proven) {
            (None, Some(Ok(proven))) => claims.prove(site, kind, &proven.sub),
            (Some(said), Some(Ok(proven))) if *said == proven.sub => claims.prove(site, kind, said),
            (Some(said), None) if site.tenant.member_proof == ProofPolicy::Trusted => claims.take(site, kind, said),
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
            Some(kind) if !kind.unique => claims.take(site, kind, value),
            Some(_) => {}
        }
    }
    Ok(claims)
}

impl Claims {
    fn prove(&mut self, site: &Site, kind: &Kind, value: &str) {
        self.proven = true;
        self.take(site, kind, value);
    }

    fn take(&mut self, site: &Site, kind: &Kind, value: &str) {
        let mut hashes = site.keys.alternate.hash_alternate(kind.code(), value).into_iter();
        if let Some(hash) = hashes.next() {
            let id = AlternateId { kind: kind.code(), hash };
            self.taken.push(Claim { id, also: hashes.collect(), unique: kind.unique });
        }
    }
}

/// The proof that the tenant's own header or session cookie carries: of several cookies, such as an old one of a longer path,
/// the first that holds.
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
