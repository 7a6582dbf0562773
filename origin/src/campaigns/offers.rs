//! Limited offers at the origin: the offer code of each visitor, from its facts, and the number of people with one.
//! Offer codes are assigned at the edge. The origin's data only stops further requests once all codes of a campaign are
//! assigned.

use std::collections::BTreeSet;

use causeway_shared::ads::catalogue::Campaign;
use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::{DAY_MINUTES, Minute};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::offer_codes::HeldOfferCodes;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::campaigns::catalogue;
use crate::profiles::offer_codes::read_code;
use crate::store::tables::{offer_codes, offer_codes_given, visitors};
use crate::store::{PersonNo, StoreCounters, StoreError, TenantNo, VisitorRow};

/// Time after a restore during which no offer counts as sold out, in minutes.
const ASKED_MINUTES: u32 = 31 * DAY_MINUTES;

/// A campaign with a limited number of recipients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitedOffer {
    /// Code of the campaign.
    pub campaign: u32,
    /// Id of the campaign.
    pub id: String,
    /// Number of offer codes.
    pub limit: u32,
}

impl LimitedOffer {
    /// The campaign's offer; `None` if its recipients are not limited.
    #[must_use]
    pub fn of(campaign: &Campaign) -> Option<Self> {
        let limit = campaign.recipients?.limit;
        Some(Self { campaign: campaign.code, id: campaign.id.clone(), limit })
    }
}

/// Records assigned offer codes, including a visitor's second code, which no person counts.
///
/// # Errors
/// [`StoreError`].
pub fn keep_given<'f>(
    conn: &Connection,
    tenant: TenantNo,
    facts: impl Iterator<Item = &'f Fact>,
) -> Result<(), StoreError> {
    for fact in facts {
        if let FactKind::OfferCode { campaign, number } = fact.what {
            conn.prepare_cached(offer_codes_given::OFFER_CODES_GIVEN_INSERT_NEW)?
                .execute((tenant.0, campaign, number))?;
        }
    }
    Ok(())
}

/// Offer codes of a person: for each campaign the first of its visitors, without withdrawn ones.
///
/// # Errors
/// [`StoreError`].
pub fn of_person(conn: &Connection, person: PersonNo) -> Result<HeldOfferCodes, StoreError> {
    let mut statement = conn.prepare_cached(visitors::VISITORS_OFFER_CODES_OF_PERSON)?;
    Ok(statement.query_map([person.0], read_code)?.collect::<Result<_, _>>()?)
}

/// Deletes a visitor's offer codes. They stay assigned.
///
/// # Errors
/// [`StoreError`].
pub fn drop_all(conn: &Connection, visitor: VisitorRow) -> Result<(), StoreError> {
    conn.prepare_cached(offer_codes::OFFER_CODES_DELETE_OF_VISITOR)?.execute([visitor])?;
    Ok(())
}

/// Number of assigned offer codes of a campaign, within its limit.
fn count_given(conn: &Connection, tenant: TenantNo, of: &LimitedOffer) -> Result<u32, StoreError> {
    Ok(conn
        .prepare_cached(offer_codes_given::OFFER_CODES_GIVEN_COUNT_OF_CAMPAIGN)?
        .query_row((tenant.0, of.campaign, of.limit), |row| row.get(0))?)
}

/// Codes of a tenant's limited campaigns that are sold out. None counts as sold out for a while after a restore: a
/// visitor with an offer code from after the backup asks again, gets the same code, and reports it.
///
/// # Errors
/// [`StoreError`].
pub fn given_out(
    conn: &Connection,
    tenant: TenantNo,
    limited: &[LimitedOffer],
    now: Millis,
) -> Result<BTreeSet<u32>, StoreError> {
    let mut codes = BTreeSet::new();
    // The restore epoch is the minute of the restore.
    let restored = Minute(StoreCounters::load(conn)?.version().restore);
    if Minute::at(now).0 < restored.0.saturating_add(ASKED_MINUTES) {
        return Ok(codes);
    }
    for of in limited {
        if count_given(conn, tenant, of)? >= of.limit {
            codes.insert(of.campaign);
        }
    }
    Ok(codes)
}

/// A limited offer, and how far it is given out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OfferAnswer {
    /// Id of the campaign.
    pub campaign: String,
    /// Offer codes that there are.
    pub recipients: u32,
    /// Offer codes that a person has.
    pub given: u32,
    /// Offer codes that no person has.
    pub left: u32,
    /// People with an offer code.
    pub people: i64,
    /// People with several offer codes: their browsers each got one before they were known to be one person.
    pub with_several: i64,
}

/// Report of the limited offers in a tenant's current catalogue: assigned and remaining offer codes, people with a
/// code, and people with several codes, because their browsers were linked after each had one.
///
/// # Errors
/// [`StoreError`].
pub fn report_offers(conn: &Connection, tenant: TenantNo) -> Result<Vec<OfferAnswer>, StoreError> {
    let row = |of: &LimitedOffer| {
        let given = count_given(conn, tenant, of)?;
        let mut statement = conn.prepare_cached(offer_codes::OFFER_CODES_COUNT_PEOPLE_OF_CAMPAIGN)?;
        let (people, several): (i64, i64) =
            statement.query_row((tenant.0, of.campaign), |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(OfferAnswer {
            campaign: of.id.clone(),
            recipients: of.limit,
            given,
            left: of.limit.saturating_sub(given),
            people,
            with_several: several,
        })
    };
    catalogue::limited_of_tenant(conn, tenant)?.iter().map(row).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::BTreeMap;

    use causeway_shared::base::ids::{FactId, VisitorId};
    use causeway_shared::base::limits;
    use causeway_shared::wire::catalogue::decode_allocation;
    use causeway_shared::wire::kv_keys;

    use serde_json::json;

    use super::*;
    use crate::testing::{NOW, Origin, fact, snapshot, visitor};
    use causeway_shared::facts::offer_codes::HeldOfferCode;

    const CODES: u32 = 2;

    fn got(visitor: VisitorId, n: u32, number: u32) -> Fact {
        fact(visitor, n, NOW + u64::from(n), FactKind::OfferCode { campaign: CODES, number })
    }

    /// A campaign without a limit, and one with a limit.
    fn apply(origin: &mut Origin, limit: u32) {
        let document = json!({
            "advertiser": [{ "id": "shop" }],
            "campaign": [
                { "id": "plain", "code": 1, "advertiser": "shop" },
                { "id": "codes", "code": CODES, "advertiser": "shop", "recipients": { "limit": limit } },
            ],
        });
        let (tenant, given) = (origin.tenant("demo").clone(), origin.given());
        catalogue::apply(&mut origin.conn, &origin.rules, given, &tenant, document, "tests").unwrap();
    }

    /// Assigned offer codes, people with one, people with several.
    fn counts(origin: &Origin) -> [i64; 3] {
        let report = report_offers(&origin.conn, origin.tenant("demo").no).unwrap();
        let report: Vec<_> = report.iter().map(crate::testing::as_json).collect();
        let [of] = &report[..] else { unreachable!("{report:?}") };
        assert_eq!((of["campaign"].as_str(), of["recipients"].as_i64()), (Some("codes"), Some(3)));
        assert_eq!(of["left"].as_i64().unwrap(), 3 - of["given"].as_i64().unwrap());
        ["given", "people", "with_several"].map(|name| of[name].as_i64().unwrap())
    }

    #[test]
    fn recipients_are_people_after_merges_unlinks_and_erasures() {
        let mut origin = Origin::new();
        apply(&mut origin, 3);
        let (phone, laptop) = (visitor(1), visitor(2));
        origin.send("demo", &[got(phone, 1, 0), got(laptop, 2, 1), got(phone, 1, 0), got(phone, 3, 0)]);
        assert_eq!(counts(&origin), [2, 2, 0]);
        let logins = [origin.login(phone, 10, NOW, "ann"), origin.login(laptop, 11, NOW, "ann")];
        origin.send("demo", &logins);
        assert_eq!(counts(&origin), [2, 1, 1], "one person: its first offer_code is the one that counts");
        let first = HeldOfferCode { number: 0, at: NOW + 1 };
        assert_eq!(origin.person("demo", laptop).offer_codes.get(CODES), Some(first));
        // The person's snapshot contains the same code.
        let mut written = BTreeMap::new();
        origin.settle(&mut written);
        let mut view = causeway_shared::profiles::view::JoinedView::default();
        view.add_snapshot(snapshot(&written, laptop));
        assert_eq!(view.of(laptop).offer_codes().get(CODES), Some(first));
        let unlink = FactKind::Cancellation { id: origin.member("demo", "ann") };
        origin.admin("demo", &[fact(laptop, 12, NOW + 60_000, unlink)]);
        assert_eq!(counts(&origin), [2, 2, 0], "unlinked, both are recipients");
        let erase = Fact { id: FactId::of_erasure(phone), ..fact(phone, 13, NOW, erasure()) };
        origin.send("demo", &[erase]);
        assert_eq!(counts(&origin), [2, 1, 0], "what it got stays given");
        let rows = origin.conn.query_row("SELECT count(*) FROM offer_codes", [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(rows, 1);
    }

    fn erasure() -> FactKind {
        FactKind::Erasure { scope: causeway_shared::facts::fact::ErasureScope::Visitor, id: None, also: Vec::new() }
    }

    /// The sold-out campaigns in the newest traffic allocation, if there is one.
    fn given_out(origin: &mut Origin, written: &mut BTreeMap<String, String>) -> Option<Vec<u32>> {
        origin.now += limits::ALLOCATION_MS;
        origin.settle(written);
        let key = kv_keys::allocation_key(&origin.tenant("demo").id);
        let value = written.get(&key)?;
        Some(decode_allocation(&key, value.as_bytes()).unwrap().1.given_out.into_iter().collect())
    }

    #[test]
    fn the_edges_stop_asking_after_every_offer_code_is_given() {
        let (mut origin, mut written) = (Origin::new(), BTreeMap::new());
        let mut given_out = |origin: &mut Origin| given_out(origin, &mut written);
        apply(&mut origin, 3);
        origin.send("demo", &[got(visitor(1), 1, 0), got(visitor(2), 2, 2)]);
        assert_eq!(given_out(&mut origin), None, "nothing to allocate");
        origin.send("demo", &[got(visitor(3), 3, 1)]);
        assert_eq!(given_out(&mut origin), Some(vec![CODES]));
        apply(&mut origin, 4);
        assert_eq!(given_out(&mut origin), Some(vec![]), "there is one more");
        apply(&mut origin, 2);
        assert_eq!(given_out(&mut origin), Some(vec![CODES]));
    }

    #[test]
    fn a_second_offer_code_of_a_visitor_is_given_and_counts_for_no_person() {
        let mut origin = Origin::new();
        apply(&mut origin, 3);
        origin.send("demo", &[got(visitor(1), 2, 1), got(visitor(1), 1, 0)]);
        assert_eq!(counts(&origin), [2, 1, 0]);
        let first = HeldOfferCode { number: 0, at: NOW + 1 };
        assert_eq!(origin.person("demo", visitor(1)).offer_codes.get(CODES), Some(first));
    }

    #[test]
    fn a_holder_of_an_offer_code_newer_than_the_backup_may_ask_again_for_a_month() {
        let (mut origin, mut written) = (Origin::new(), BTreeMap::new());
        apply(&mut origin, 1);
        let copy = tempfile::tempdir().unwrap();
        let path = copy.path().join("copy.db");
        origin.conn.execute("VACUUM INTO ?1", [path.to_string_lossy()]).unwrap();
        origin.send("demo", &[got(visitor(1), 1, 0)]);
        assert_eq!(given_out(&mut origin, &mut written), Some(vec![CODES]));
        let before = crate::maintenance::backup::ReplacedStore::of_conn(&origin.conn).unwrap();
        origin.conn = Connection::open(&path).unwrap();
        crate::maintenance::backup::renew_store(&mut origin.conn, &before, origin.now).unwrap();
        let restored = origin.now;
        origin.now += limits::ALLOCATION_MS;
        assert_eq!(given_out(&mut origin, &mut written).unwrap_or_default(), Vec::<u32>::new());
        origin.send("demo", &[got(visitor(1), 1, 0)]);
        origin.now = restored + 30 * 86_400_000;
        assert_eq!(given_out(&mut origin, &mut written).unwrap_or_default(), Vec::<u32>::new());
        assert_eq!(
            origin.person("demo", visitor(1)).offer_codes.get(CODES).map(|offer_code| offer_code.number),
            Some(0)
        );
        origin.now = restored + 31 * 86_400_000;
        assert_eq!(given_out(&mut origin, &mut written), Some(vec![CODES]));
    }

    #[test]
    fn offer_codes_given_since_a_backup_stay_given() {
        let mut origin = Origin::new();
        apply(&mut origin, 3);
        origin.send("demo", &[got(visitor(1), 1, 0), got(visitor(2), 2, 1)]);
        let before = catalogue::ReplacedRows::of(&origin.conn, &mut crate::maintenance::backup::UnreadParts::default());
        origin.conn.execute("DELETE FROM offer_codes_given WHERE number = 1", []).unwrap();
        before.bring(&origin.conn, &catalogue::TenantNumbers::default()).unwrap();
        assert_eq!(counts(&origin), [2, 2, 0]);
    }
}
