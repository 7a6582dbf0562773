//! Descriptions of visitors and lookups for the admin API and `causeway inspect`, as JSON.

use causeway_shared::base::bucket::BucketPurpose;
use causeway_shared::base::ids::{AlternateId, KindCode, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::evidence::EvidenceWeight;
use causeway_shared::facts::exposures::{Exposures, FirstExposure};
use causeway_shared::facts::offer_slots::{HeldSlot, HeldSlots};
use causeway_shared::profiles::profile::ProfileTotals;
use causeway_shared::targeting::experiment::Experiment;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::campaigns::catalogue;
use crate::campaigns::offers::LimitedOffer;
use crate::identity::connections::PairCheck;
use crate::identity::link::{self, canonical_id};
use crate::store::StoreError;
use crate::store::id_error::IdError;
use crate::store::tenants::TenantContext;
use crate::views::read::{self, StoreView};

/// Most members of a person that are named. The sums include all members that are read.
const MEMBERS: usize = 1_000;

/// All stored data of a visitor; `None` if no fact of it was received.
///
/// # Errors
/// [`StoreError`].
pub fn describe_visitor(
    view: &StoreView<'_>,
    tenant: &TenantContext,
    id: VisitorId,
) -> Result<Option<Value>, StoreError> {
    visitor_of(view, tenant, id, limits::PERSON_VISITORS)
}

/// All stored data of a visitor, with at most `most` members of its person.
fn visitor_of(
    view: &StoreView<'_>,
    tenant: &TenantContext,
    id: VisitorId,
    most: usize,
) -> Result<Option<Value>, StoreError> {
    let Some(own) = read::load_visitor(view, tenant.no, id)? else {
        return Ok(None);
    };
    let person = read::load_person(view, &own, most)?;
    let members: Vec<String> = person.members.iter().take(MEMBERS).map(VisitorId::to_string).collect();
    let lookups = read::lookups_of(view.conn, tenant.no, id)?;
    let seen = own.profile.seen();
    let limited = match catalogue::limited_of_tenant(view.conn, tenant.no) {
        // Without readable offers, codes replace the names.
        Err(e) if e.is_of_a_value() => Vec::new(),
        limited => limited?,
    };
    Ok(Some(json!({
        "tenant": tenant.id.as_str(),
        "visitor": id.to_string(),
        "own": describe_totals(own.profile.totals()),
        "view": describe_totals(person.view),
        "person": {
            "master": person.master.to_string(), "members": members, "devices": person.devices,
            "truncated": person.truncated,
        },
        "links": describe_links(view.conn, tenant, id)?,
        "lookups": lookups.iter().map(|id| describe_id(tenant, *id)).collect::<Vec<_>>(),
        "experiments": describe_exposures(catalogue::load_experiments(view.conn)?.of(tenant.no), &person.exposures),
        "units": describe_offers(&limited, &person.units),
        "buckets": {"sampling": person.random.map(|random| random.bucket(BucketPurpose::Sampling))},
        "first_seen_ms": seen.map(|(first, _)| first),
        "last_seen_ms": seen.map(|(_, last)| last),
        "version": own.version.to_string(),
        "snapshot_version": (own.published > 0).then(|| format!("{}.{}", own.version.restore, own.published)),
        "tombstone": own.withdrawn.is_some(),
    })))
}

/// The sums under the names of `/v1/me`.
#[must_use]
pub fn describe_totals(t: ProfileTotals) -> Value {
    json!({"pages": t.pages, "sessions": t.sessions, "purchases": t.purchases, "revenue_micros": t.revenue})
}

/// The arms that a person was exposed to, by name. An experiment or arm that the catalogue no longer has is named by
/// its code.
fn describe_exposures(tested: &[Experiment], exposures: &Exposures) -> Vec<Value> {
    let named = |(code, FirstExposure { arm, at, mixed }): (u32, FirstExposure)| {
        let experiment = tested.iter().find(|experiment| experiment.code == code);
        let of_arm = experiment.and_then(|experiment| experiment.arm_of(arm));
        json!({
            "experiment": experiment.map_or_else(|| code.to_string(), |experiment| experiment.id.clone()),
            "arm": of_arm.map_or_else(|| arm.to_string(), |arm| arm.id.clone()),
            "since_ms": at,
            "mixed": mixed,
        })
    };
    exposures.iter().map(named).collect()
}

/// The offer codes of a person, by the campaign's id. A campaign that the catalogue no longer has is named by its code.
fn describe_offers(limited: &[LimitedOffer], units: &HeldSlots) -> Vec<Value> {
    let named = |(code, HeldSlot { number, at }): (u32, HeldSlot)| {
        let of = limited.iter().find(|of| of.campaign == code);
        json!({
            "campaign": of.map_or_else(|| code.to_string(), |of| of.id.clone()), "unit": number, "since_ms": at,
        })
    };
    units.iter().map(named).collect()
}

/// An alternate id with its kind's name. A kind that is no longer configured is named by its number.
#[must_use]
pub fn describe_id(tenant: &TenantContext, id: AlternateId) -> Value {
    if id.kind == KindCode::PAIR {
        return json!({ "kind": "pair", "hash": id.hash.to_string() });
    }
    let kind = tenant.config.kind_of(id.kind).map(|k| k.name.clone());
    json!({"kind": kind.unwrap_or_else(|| id.kind.0.to_string()), "hash": id.hash.to_string()})
}

fn describe_links(conn: &Connection, tenant: &TenantContext, visitor: VisitorId) -> Result<Vec<Value>, StoreError> {
    let rows = link::of_visitor(conn, tenant.no, visitor)?;
    let describe = |row: &link::EvidenceRow| {
        let mut link = if row.evidence.id.kind == KindCode::PAIR {
            let other = link::other_of_pair(conn, tenant.no, row.evidence.id, visitor)?;
            json!({ "visitor": other.map(|other| other.to_string()) })
        } else {
            describe_id(tenant, row.evidence.id)
        };
        let more = json!({
            "weight": row.evidence.weight.as_f64(),
            "source": row.source_name(),
            "proven": row.proven,
            "first_ms": row.evidence.first,
            "last_ms": row.evidence.last,
            "stands": row.evidence.stands(),
            "flag": row.flag.map(|f| f.code()),
        });
        if let (Some(link), Value::Object(more)) = (link.as_object_mut(), more) {
            link.extend(more);
        }
        Ok(link)
    };
    rows.iter().map(describe).collect()
}

/// Reason why a lookup cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The id or its kind is invalid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// No visitor was seen with the id.
    #[error("no visitor was seen with that id")]
    Unknown,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The visitors last seen with a raw alternate id. The id is hashed here and not passed on.
///
/// # Errors
/// [`LookupError`].
pub fn describe_lookup(
    conn: &Connection,
    tenant: &TenantContext,
    kind: &str,
    value: &str,
) -> Result<Value, LookupError> {
    let (code, hashes) = tenant.alternate(kind, value)?;
    for hash in hashes {
        let Some(id) = canonical_id(conn, tenant.no, AlternateId { kind: code, hash })? else {
            continue;
        };
        let Some(found) = read::load_lookup(conn, tenant.no, id)? else {
            continue;
        };
        if let Some(newest) = found.visitors.first() {
            let visitors: Vec<String> = found.visitors.iter().map(VisitorId::to_string).collect();
            return Ok(json!({
                "tenant": tenant.id.as_str(),
                "kind": kind,
                "hash": id.hash.to_string(),
                "visitor": newest.to_string(),
                "visitors": visitors,
                "since_ms": found.since,
            }));
        }
    }
    Err(LookupError::Unknown)
}

/// A checked connection as JSON.
#[must_use]
pub fn describe_check(found: PairCheck) -> Value {
    let PairCheck { connected, weight, path, reads } = found;
    json!({ "connected": connected, "weight": weight.map(EvidenceWeight::as_f64), "path": path, "reads": reads })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::{NOW, Origin, page, visitor};

    #[test]
    fn of_a_person_the_last_active_are_read_up_to_a_bound_and_the_answer_says_so() {
        let mut origin = Origin::new();
        for v in 1..=3 {
            // The time of the last activity is stored with a precision of an hour.
            let at = NOW - u64::from(3 - v) * 2 * 3_600_000;
            let login = origin.login(visitor(v), 9, at, "ann");
            origin.send("demo", &[page(visitor(v), 1, at), login]);
        }
        let view = StoreView::folded(&origin.conn);
        let described = |of, most| {
            let described = visitor_of(&view, origin.tenant("demo"), visitor(of), most).unwrap().unwrap();
            let person = &described["person"];
            let members = person["members"].as_array().unwrap().len();
            (described["view"]["pages"].clone(), members, person["devices"].clone(), person["truncated"].clone())
        };
        assert_eq!(described(1, 3), (json!(3), 3, json!(3), json!(false)));
        assert_eq!(described(3, 2), (json!(2), 2, json!(3), json!(true)));
        // The requested visitor is always among the members.
        let last = visitor_of(&view, origin.tenant("demo"), visitor(1), 1).unwrap().unwrap();
        assert_eq!(last["person"]["members"], json!([visitor(1).to_string(), visitor(3).to_string()]));
    }
}
