//! Answers about a visitor or a lookup, as the admin side and `causeway inspect` print them.

use causeway_shared::base::bucket::BucketPurpose;
use causeway_shared::base::ids::{AlternateId, KindCode, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::evidence::EvidenceWeight;
use causeway_shared::facts::exposures::{Exposures, FirstExposure};
use causeway_shared::facts::offer_codes::{HeldOfferCode, HeldOfferCodes};
use causeway_shared::profiles::profile::ProfileTotals;
use causeway_shared::targeting::experiment::Experiment;
use rusqlite::Connection;
use serde::Serialize;
use utoipa::ToSchema;

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

/// Everything that is stored about a visitor.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct VisitorAnswer {
    /// Tenant of the visitor.
    pub tenant: String,
    /// Id of the visitor.
    #[schema(format = "uuid")]
    pub visitor: String,
    /// Sums of the visitor.
    pub own: VisitorTotals,
    /// Sums of the person.
    pub view: VisitorTotals,
    /// The person of the visitor.
    pub person: PersonAnswer,
    /// The visitor's evidence.
    pub links: Vec<LinkAnswer>,
    /// Alternate ids whose lookup names the visitor.
    pub lookups: Vec<NamedId>,
    /// First exposures of the person to experiments.
    pub experiments: Vec<ExposureAnswer>,
    /// Offer codes that the person got first.
    pub offer_codes: Vec<OfferCodeAnswer>,
    /// Buckets of the person.
    pub buckets: PersonBuckets,
    /// Time of the visitor's first fact; null without one.
    pub first_seen_ms: Option<u64>,
    /// Time of the visitor's last fact; null without one.
    pub last_seen_ms: Option<u64>,
    /// Version of the visitor's profile.
    pub version: String,
    /// Version of the newest snapshot that the outbox handed out; null before the first.
    pub snapshot_version: Option<String>,
    /// Whether the visitor withdrew its permission.
    pub tombstone: bool,
}

/// Sums over the facts of one visitor, or of all visitors of a person.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct VisitorTotals {
    /// Page views.
    pub pages: u64,
    /// Sessions.
    pub sessions: u64,
    /// Purchases.
    pub purchases: u64,
    /// Revenue of the purchases.
    pub revenue_micros: i64,
}

/// The person of a visitor.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PersonAnswer {
    /// Master of the person: its oldest visitor.
    #[schema(format = "uuid")]
    pub master: String,
    /// The oldest visitors of the person, at most 1,000.
    #[schema(max_items = 1000)]
    pub members: Vec<String>,
    /// Number of visitors of the person.
    pub devices: u32,
    /// Whether the person has more than 100,000 visitors. Then `view` sums up the last active of them, and `members`
    /// names the oldest of these.
    pub truncated: bool,
}

/// The buckets of a person.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PersonBuckets {
    /// Bucket of the person in a random sample, from 0 to 9999; null before the first fold.
    pub sampling: Option<u16>,
}

/// The first exposure of a person to an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ExposureAnswer {
    /// Id of the experiment; its code after the catalogue dropped it.
    pub experiment: String,
    /// Id of the arm; its code after the catalogue dropped it.
    pub arm: String,
    /// Time of the exposure.
    pub since_ms: u64,
    /// Whether the person saw another arm too. Then no figures of an arm contain it.
    pub mixed: bool,
}

/// An offer code of a limited offer that a person got.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct OfferCodeAnswer {
    /// Id of the campaign; its code after the catalogue dropped it.
    pub campaign: String,
    /// Number of the offer code, from 0.
    pub code: u32,
    /// Time at which the person got it.
    pub since_ms: u64,
}

/// Evidence of a visitor.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct LinkAnswer {
    /// The visitor or alternate id that the evidence ties to the visitor.
    #[serde(flatten)]
    pub end: LinkEnd,
    /// Weight of the evidence, over 0 and at most 1.
    pub weight: f64,
    /// Source of the evidence.
    pub source: String,
    /// Whether the publisher signed a proof for it.
    pub proven: bool,
    /// Time of the first evidence.
    pub first_ms: u64,
    /// Time of the last evidence.
    pub last_ms: u64,
    /// Whether no cancellation ended the evidence.
    pub stands: bool,
    /// Reason for which the evidence links nothing: `second_unique`, `joins_two_people` or `oversized_group`; null
    /// where it counts.
    pub flag: Option<&'static str>,
}

/// The other end of evidence.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum LinkEnd {
    /// The other visitor of a link of two visitors.
    Visitor {
        /// Id of the visitor; null after it was erased.
        #[schema(format = "uuid")]
        visitor: Option<String>,
    },
    /// An alternate id.
    Id(NamedId),
}

/// The visitors that were last seen with an alternate id.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct LookupAnswer {
    /// Tenant of the lookup.
    pub tenant: String,
    /// Kind of the alternate id.
    pub kind: String,
    /// Keyed hash of the id: 32 hexadecimal digits.
    pub hash: String,
    /// The newest of `visitors`.
    #[schema(format = "uuid")]
    pub visitor: String,
    /// The visitors, the newest first, at most 3.
    #[schema(max_items = 3)]
    pub visitors: Vec<String>,
    /// Time since which `visitor` is the newest.
    pub since_ms: u64,
}

/// All stored data of a visitor; `None` if no fact of it was received.
///
/// # Errors
/// [`StoreError`].
pub fn describe_visitor(
    view: &StoreView<'_>,
    tenant: &TenantContext,
    id: VisitorId,
) -> Result<Option<VisitorAnswer>, StoreError> {
    visitor_of(view, tenant, id, limits::PERSON_VISITORS)
}

/// All stored data of a visitor, with at most `most` members of its person.
fn visitor_of(
    view: &StoreView<'_>,
    tenant: &TenantContext,
    id: VisitorId,
    most: usize,
) -> Result<Option<VisitorAnswer>, StoreError> {
    let Some(own) = read::load_visitor(view, tenant.no, id)? else {
        return Ok(None);
    };
    let person = read::load_person(view, &own, most)?;
    let members = person.members.iter().take(MEMBERS).map(VisitorId::to_string).collect();
    let lookups = read::lookups_of(view.conn, tenant.no, id)?;
    let seen = own.profile.seen();
    let limited = match catalogue::limited_of_tenant(view.conn, tenant.no) {
        // Without readable offers, codes replace the names.
        Err(e) if e.is_of_a_value() => Vec::new(),
        limited => limited?,
    };
    let sampling = person.random.as_ref().map(|random| random.bucket(BucketPurpose::Sampling));
    Ok(Some(VisitorAnswer {
        tenant: tenant.id.as_str().to_owned(),
        visitor: id.to_string(),
        own: describe_totals(own.profile.totals()),
        view: describe_totals(person.view),
        person: PersonAnswer {
            master: person.master.to_string(),
            members,
            devices: person.devices,
            truncated: person.truncated,
        },
        links: describe_links(view.conn, tenant, id)?,
        lookups: lookups.iter().map(|id| describe_id(tenant, *id)).collect(),
        experiments: describe_exposures(catalogue::load_experiments(view.conn)?.of(tenant.no), &person.exposures),
        offer_codes: describe_offers(&limited, &person.offer_codes),
        buckets: PersonBuckets { sampling },
        first_seen_ms: seen.map(|(first, _)| first),
        last_seen_ms: seen.map(|(_, last)| last),
        version: own.version.to_string(),
        snapshot_version: own.published.map(|counter| format!("{}.{counter}", own.version.restore)),
        tombstone: own.withdrawn.is_some(),
    }))
}

/// The sums under the names of `/v1/me`.
#[must_use]
pub fn describe_totals(totals: ProfileTotals) -> VisitorTotals {
    let ProfileTotals { pages, sessions, purchases, revenue } = totals;
    VisitorTotals { pages, sessions, purchases, revenue_micros: revenue.get() }
}

/// The arms that a person was exposed to, by name. An experiment or arm that the catalogue no longer has is named by
/// its code.
fn describe_exposures(tested: &[Experiment], exposures: &Exposures) -> Vec<ExposureAnswer> {
    let named = |(code, FirstExposure { arm, at, mixed }): (u32, FirstExposure)| {
        let experiment = tested.iter().find(|experiment| experiment.code == code);
        let of_arm = experiment.and_then(|experiment| experiment.arm_of(arm));
        ExposureAnswer {
            experiment: experiment.map_or_else(|| code.to_string(), |experiment| experiment.id.clone()),
            arm: of_arm.map_or_else(|| arm.to_string(), |arm| arm.id.clone()),
            since_ms: at,
            mixed,
        }
    };
    exposures.iter().map(named).collect()
}

/// The offer codes of a person, by the campaign's id. A campaign that the catalogue no longer has is named by its code.
fn describe_offers(limited: &[LimitedOffer], offer_codes: &HeldOfferCodes) -> Vec<OfferCodeAnswer> {
    let named = |(code, HeldOfferCode { number, at }): (u32, HeldOfferCode)| {
        let of = limited.iter().find(|of| of.campaign == code);
        let campaign = of.map_or_else(|| code.to_string(), |of| of.id.clone());
        OfferCodeAnswer { campaign, code: number, since_ms: at }
    };
    offer_codes.iter().map(named).collect()
}

/// An alternate id by the name of its kind and by its hash; the raw value is stored nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct NamedId {
    /// Name of the kind; the number of a kind that is no longer configured; `pair` for a link of two visitors.
    pub kind: String,
    /// Keyed hash of the id: 32 hexadecimal digits.
    pub hash: String,
}

/// Names the kind of an alternate id.
#[must_use]
pub fn describe_id(tenant: &TenantContext, id: AlternateId) -> NamedId {
    let kind = match tenant.config.kind_of(id.kind) {
        _ if id.kind == KindCode::PAIR => "pair".to_owned(),
        Some(kind) => kind.name.clone(),
        None => id.kind.0.to_string(),
    };
    NamedId { kind, hash: id.hash.to_string() }
}

fn describe_links(
    conn: &Connection,
    tenant: &TenantContext,
    visitor: VisitorId,
) -> Result<Vec<LinkAnswer>, StoreError> {
    let rows = link::of_visitor(conn, tenant.no, visitor)?;
    let describe = |row: &link::EvidenceRow| {
        let end = if row.evidence.id.kind == KindCode::PAIR {
            let other = link::other_of_pair(conn, tenant.no, row.evidence.id, visitor)?;
            LinkEnd::Visitor { visitor: other.map(|other| other.to_string()) }
        } else {
            LinkEnd::Id(describe_id(tenant, row.evidence.id))
        };
        Ok(LinkAnswer {
            end,
            weight: row.evidence.weight.as_f64(),
            source: row.source_name().to_owned(),
            proven: row.proven,
            first_ms: row.evidence.first,
            last_ms: row.evidence.last,
            stands: row.evidence.stands(),
            flag: row.flag.map(|f| f.code()),
        })
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
) -> Result<LookupAnswer, LookupError> {
    let (code, hashes) = tenant.alternate(kind, value)?;
    for hash in hashes {
        let Some(id) = canonical_id(conn, tenant.no, AlternateId { kind: code, hash })? else {
            continue;
        };
        let Some(found) = read::load_lookup(conn, tenant.no, id)? else {
            continue;
        };
        if let Some(newest) = found.visitors.first() {
            return Ok(LookupAnswer {
                tenant: tenant.id.as_str().to_owned(),
                kind: kind.to_owned(),
                hash: id.hash.to_string(),
                visitor: newest.to_string(),
                visitors: found.visitors.iter().map(VisitorId::to_string).collect(),
                since_ms: found.since,
            });
        }
    }
    Err(LookupError::Unknown)
}

/// How two visitors are connected.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct LinkCheck {
    /// Whether the two visitors are one person.
    pub connected: bool,
    /// Weight of the weakest connection between the two, over 0 and at most 1; null where they are not connected.
    pub weight: Option<f64>,
    /// Links from one to the other over the master: 0 for a visitor and itself, 1 where one of them is the master,
    /// otherwise 2; null where they are not connected.
    pub path: Option<u8>,
    /// Visitors read, each with its master: 1 where the older one is the master of the other, otherwise 2.
    pub reads: u8,
}

/// Describes a checked connection.
#[must_use]
pub fn describe_check(found: PairCheck) -> LinkCheck {
    let PairCheck { connected, weight, path, reads } = found;
    LinkCheck { connected, weight: weight.map(EvidenceWeight::as_f64), path, reads }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

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
            let described =
                crate::testing::as_json(visitor_of(&view, origin.tenant("demo"), visitor(of), most).unwrap().unwrap());
            let person = &described["person"];
            let members = person["members"].as_array().unwrap().len();
            (described["view"]["pages"].clone(), members, person["devices"].clone(), person["truncated"].clone())
        };
        assert_eq!(described(1, 3), (json!(3), 3, json!(3), json!(false)));
        assert_eq!(described(3, 2), (json!(2), 2, json!(3), json!(true)));
        // The requested visitor is always among the members.
        let last = crate::testing::as_json(visitor_of(&view, origin.tenant("demo"), visitor(1), 1).unwrap().unwrap());
        assert_eq!(last["person"]["members"], json!([visitor(1).to_string(), visitor(3).to_string()]));
    }
}
