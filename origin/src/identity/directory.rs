//! The directory: all people by their masters, and all visitors of a person, in pages.

use std::str::FromStr;

use causeway_shared::base::ids::VisitorId;
use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;
use utoipa::ToSchema;

use crate::store::tables::{people, visitors};
use crate::store::{PersonNo, StoreError, TenantNo, visitor_at};

/// A person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ListedPerson {
    /// Master of the person: its oldest visitor.
    #[schema(format = "uuid")]
    pub master: String,
    /// Number of visitors of the person.
    pub devices: u32,
}

/// A page of the visitors of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PersonVisitors {
    /// The person.
    #[serde(flatten)]
    pub person: ListedPerson,
    /// The visitors, in the order of their last activity. A visitor that becomes active between two pages is on both.
    pub members: Vec<String>,
    /// Value of `after` for the next page; null on the last page.
    pub next: Option<String>,
}

/// Position after a page: its last visitor, and that visitor's last activity at that time, which may change before the
/// next page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageEnd {
    visitor: VisitorId,
    last_seen: Option<i64>,
}

impl FromStr for PageEnd {
    type Err = ();

    /// Parses a visitor's id, or a value of [`PersonVisitors::next`].
    fn from_str(text: &str) -> Result<Self, ()> {
        let (visitor, last_seen) = text.split_once('.').map_or((text, None), |(visitor, at)| (visitor, Some(at)));
        let last_seen = last_seen.map(str::parse).transpose().map_err(drop)?;
        Ok(Self { visitor: visitor.parse().map_err(drop)?, last_seen })
    }
}

/// Most rows that a page of people examines, because erased visitors remain as rows.
pub const LOOKED: usize = 20_000;

/// People by their masters, the oldest first: at most `most` people with a master younger than `after`, from at most
/// `looked` rows. Also returns the master after which the next page starts; that page may be empty if many visitors
/// were erased. A withdrawn visitor is a person of its own; an erased visitor is left out.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn list_people(
    conn: &Connection,
    tenant: TenantNo,
    after: Option<VisitorId>,
    most: usize,
    looked: usize,
) -> Result<(Vec<ListedPerson>, Option<String>), StoreError> {
    let after = after.map(|after| after.as_bytes().to_vec()).unwrap_or_default();
    let mut statement = conn.prepare_cached(people::PEOPLE_OF_TENANT_FROM_MASTER)?;
    let mut rows = statement.query((tenant.0, after))?;
    let mut people: Vec<ListedPerson> = Vec::new();
    let mut last = None;
    for _ in 0..looked {
        let Some(row) = rows.next()? else { return Ok((people, None)) };
        let (master, is_erased): (String, bool) = (visitor_at(row, 0)?.to_string(), row.get(2)?);
        if !is_erased && people.len() == most {
            let next = people.last().map(|person| person.master.clone());
            return Ok((people, next));
        }
        last = Some(master.clone());
        if !is_erased {
            people.push(ListedPerson { master, devices: row.get(1)? });
        }
    }
    Ok((people, last))
}

/// The person of a visitor, and at most `most` of its visitors, in order of activity after `after`. `None` if the
/// visitor is unknown, or `after` belongs to another person. A visitor that becomes active between two pages is on a
/// later page, even if an earlier page had it.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn list_visitors(
    conn: &Connection,
    tenant: TenantNo,
    of: VisitorId,
    after: Option<PageEnd>,
    most: usize,
) -> Result<Option<PersonVisitors>, StoreError> {
    let Some((person, ..)) = visitor_position(conn, tenant, of)? else { return Ok(None) };
    let (last_seen, row) = match after {
        None => (i64::MIN, 0),
        Some(after) => match visitor_position(conn, tenant, after.visitor)?.filter(|(other, ..)| *other == person) {
            Some((_, last_seen, row)) => (after.last_seen.unwrap_or(last_seen), row),
            None => return Ok(None),
        },
    };
    let person_row =
        |row: &rusqlite::Row<'_>| Ok(ListedPerson { master: visitor_at(row, 0)?.to_string(), devices: row.get(1)? });
    let found = conn.prepare_cached(people::PEOPLE_MASTER_AND_DEVICES)?.query_row([person.0], person_row)?;
    let mut statement = conn.prepare_cached(visitors::VISITORS_PAGE_OF_PERSON_UPWARD)?;
    let more = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
    let member = |row: &rusqlite::Row<'_>| Ok((visitor_at(row, 0)?.to_string(), row.get::<_, i64>(1)?));
    let rows = statement.query_map((person.0, last_seen, row, more), member)?;
    let mut members: Vec<(String, i64)> = rows.collect::<Result<_, _>>()?;
    let is_last = members.len() <= most;
    members.truncate(most);
    let next = members.last().filter(|_| !is_last).map(|(visitor, last_seen)| format!("{visitor}.{last_seen}"));
    Ok(Some(PersonVisitors { person: found, members: members.into_iter().map(|(visitor, _)| visitor).collect(), next }))
}

/// A visitor's person, time of last activity, and row.
pub(crate) fn visitor_position(
    conn: &Connection,
    tenant: TenantNo,
    visitor: VisitorId,
) -> Result<Option<(PersonNo, i64, i64)>, StoreError> {
    let mut statement = conn.prepare_cached(visitors::VISITORS_POSITION_OF_ID)?;
    let found = statement
        .query_row((tenant.0, visitor.as_bytes()), |row| Ok((PersonNo(row.get(0)?), row.get(1)?, row.get(2)?)));
    Ok(found.optional()?)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::identity::connections::{PairCheck, check_pair};
    use crate::privacy::erasure_request::ErasureTarget;
    use crate::testing::{NOW, Origin, page, visitor};
    use causeway_shared::facts::evidence::EvidenceWeight;
    use causeway_shared::facts::fact::ErasureScope;

    #[test]
    fn masters_and_the_visitors_of_a_master_are_listed_in_pages() {
        let mut origin = Origin::new();
        for v in 1..=7 {
            let at = NOW - 3_600_000 * u64::from(5 - v / 3);
            let facts = [page(visitor(v), 1, at), origin.login(visitor(v), 2, at, "ann")];
            origin.send("demo", &facts);
        }
        origin.send("demo", &[page(visitor(9), 1, NOW), page(visitor(8), 1, NOW)]);
        origin.send("other", &[page(visitor(5), 1, NOW)]);
        let tenant = origin.tenant("demo").no;
        let conn = &origin.conn;
        let name = |v: u32| visitor(v).to_string();
        let listed = |v: u32, devices| ListedPerson { master: name(v), devices };
        let all = |after, most| list_people(conn, tenant, after, most, LOOKED).unwrap().0;
        assert_eq!(all(None, 2), [listed(1, 7), listed(8, 1)]);
        assert_eq!(all(Some(visitor(8)), 2), [listed(9, 1)]);
        let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let found = list_visitors(conn, tenant, visitor(4), after, 2).unwrap().unwrap();
            assert_eq!(found.person, listed(1, 7));
            seen.extend(found.members);
            pages += 1;
            match found.next {
                Some(next) => after = next.parse().ok(),
                None => break,
            }
        }
        assert_eq!((seen, pages), ([2, 1, 5, 4, 3, 7, 6].map(name).to_vec(), 4), "the last active last");
        let mut steps =
            conn.prepare(&format!("EXPLAIN QUERY PLAN {}", visitors::VISITORS_PAGE_OF_PERSON_UPWARD)).unwrap();
        let steps: Vec<String> = steps.query_map([1, 2, 3, 4], |row| row.get(3)).unwrap().map(Result::unwrap).collect();
        assert!(steps.len() == 1 && steps[0].contains("visitors_by_person"), "nothing is sorted: {steps:?}");
        assert_eq!(list_visitors(conn, tenant, visitor(77), None, 2).unwrap(), None);
        assert_eq!(list_visitors(conn, tenant, visitor(1), name(9).parse().ok(), 2).unwrap(), None, "another's");
        assert_eq!(["x", "", ".", "9.x"].map(|text| text.parse::<PageEnd>()), [Err(()); 4]);
    }

    #[test]
    fn a_person_that_becomes_active_between_two_pages_is_on_one_of_them() {
        let mut origin = Origin::new();
        for v in 1..=6 {
            let at = NOW - 60_000 * u64::from(7 - v);
            origin.send("demo", &[page(visitor(v), 1, at), origin.login(visitor(v), 2, at, "ann")]);
        }
        let tenant = origin.tenant("demo").no;
        let mut again = 0;
        for busy in 1..=6 {
            let (mut seen, mut after) = (std::collections::BTreeSet::new(), None);
            loop {
                let found = list_visitors(&origin.conn, tenant, visitor(1), after, 2).unwrap().unwrap();
                seen.extend(found.members);
                let Some(next) = found.next else { break };
                after = next.parse().ok();
                // Once only, whether the visitor was on no page yet, on an earlier one, or is the last one of this
                // page.
                if seen.len() == 2 {
                    again += 1;
                    origin.send("demo", &[page(visitor(busy), 9 + again, NOW + 60_000 * u64::from(again))]);
                }
            }
            assert_eq!(seen.len(), 6, "{busy}");
        }
    }

    #[test]
    fn an_erased_person_is_not_listed_and_shortens_no_page() {
        let mut origin = Origin::new();
        let erasure = |v: u32| ErasureTarget::Visitor(visitor(v)).fact(ErasureScope::Visitor, NOW, [7; 16]);
        let pages: Vec<_> = (1..=9).map(|v| page(visitor(v), 1, NOW)).collect();
        origin.send("demo", &pages);
        origin.send("other", &[page(visitor(5), 1, NOW), erasure(1)]);
        let gone = [1, 3, 4, 5, 6, 9].map(erasure);
        origin.send("demo", &gone);
        let paged = |tenant: &str, after, most, looked| -> (Vec<String>, Option<String>) {
            let (found, next) = list_people(&origin.conn, origin.tenant(tenant).no, after, most, looked).unwrap();
            (found.into_iter().map(|person| person.master).collect(), next)
        };
        let people = |tenant: &str, after, most| paged(tenant, after, most, LOOKED).0;
        let names = |of: &[u32]| of.iter().map(|v| visitor(*v).to_string()).collect::<Vec<_>>();
        assert_eq!(people("demo", None, 2), names(&[2, 7]), "a page's worth of them in between");
        assert_eq!(people("demo", Some(visitor(7)), 2), names(&[8]));
        assert_eq!(people("demo", Some(visitor(3)), 9), names(&[7, 8]), "after one of them");
        assert_eq!(people("other", None, 2), names(&[5]));
        let name = |v: u32| Some(visitor(v).to_string());
        assert_eq!(paged("demo", None, 2, LOOKED), (names(&[2, 7]), name(7)));
        assert_eq!(paged("demo", Some(visitor(7)), 2, LOOKED), (names(&[8]), None), "only erased visitors follow");
        // A page examines a bounded number of rows, however many visitors were erased.
        assert_eq!(paged("demo", None, 2, 4), (names(&[2]), name(4)));
        assert_eq!(paged("demo", Some(visitor(4)), 2, 2), (names(&[]), name(6)));
        assert_eq!(paged("demo", Some(visitor(6)), 2, 2), (names(&[7, 8]), name(8)));
        assert_eq!(paged("demo", Some(visitor(8)), 2, 2), (names(&[]), None));
    }

    #[test]
    fn a_connection_is_checked_by_a_row_or_two() {
        let mut origin = Origin::new();
        let logins = [1, 2, 3].map(|v| origin.login(visitor(v), 1, NOW, "ann"));
        origin.send("demo", &logins);
        origin.send("demo", &[page(visitor(4), 1, NOW)]);
        origin.send("other", &[page(visitor(5), 1, NOW)]);
        let tenant = origin.tenant("demo").no;
        let checked = |a, b| check_pair(&origin.conn, tenant, visitor(a), visitor(b)).unwrap();
        let is = |path, reads| {
            Some(PairCheck { connected: true, weight: Some(EvidenceWeight::LOGIN), path: Some(path), reads })
        };
        assert_eq!([checked(1, 3), checked(3, 1)], [is(1, 1); 2], "the master in hand");
        assert_eq!([checked(2, 3), checked(3, 2)], [is(2, 2); 2]);
        assert_eq!(checked(2, 2), is(0, 1));
        assert_eq!(checked(1, 4), Some(PairCheck { connected: false, weight: None, path: None, reads: 2 }));
        assert_eq!(
            [checked(1, 5), checked(5, 1), checked(6, 6)],
            [None; 3],
            "another tenant's, and an unknown visitor"
        );
    }
}
