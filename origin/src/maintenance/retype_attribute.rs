//! Declares an attribute's kind, or changes it: the name gets a new token of the new kind, and every stored value of
//! the old token is written again as the new kind says it. The old token keeps a name of its own, which nobody writes.

use std::sync::Arc;

use causeway_shared::attributes::{AttributeMap, Dictionary, DictionaryError, Kind, Token, Value};
use causeway_shared::fact::{Fact, What};
use causeway_shared::ids::{FactId, VisitorId};
use causeway_shared::limits;
use causeway_shared::wire::profile;
use rusqlite::Connection;
use serde_json::{Value as Json, json};

use crate::base::metrics::Metrics;
use crate::campaigns::catalogue::{self, ApplyError};
use crate::ingest::intake::{Checked, Record};
use crate::outbox::kv_key::Subject;
use crate::pipeline::group;
use crate::store::CheckedBytes;
use crate::store::StoreError;
use crate::store::TenantNo;
use crate::store::names::load;
use crate::store::names::page_of;
use crate::store::names::put;
use crate::store::tenants::Known;
use crate::store::visitor_at;
use crate::store::write_txn::Given;
use crate::store::write_txn::Group;
use crate::store::write_txn::Rules;

/// Rows of visitors read and written in one transaction.
const BATCH: usize = if cfg!(test) { 2 } else { 2_000 };

/// What a change of kind comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The kind before; `None` where the name is new.
    pub from: Option<Kind>,
    /// Visitors that have a value of another kind.
    pub visitors: u64,
    /// Of them those whose value the new kind can say.
    pub converted: u64,
    /// Visitors whose stored attributes cannot be read: they are left out.
    pub unreadable: u64,
    /// Whether a filter of the current catalogue names the attribute: then it is published again.
    pub in_catalogue: bool,
}

impl Plan {
    /// As the command line shows it.
    #[must_use]
    pub fn to_json(&self, name: &str, to: Kind, done: bool) -> Json {
        json!({
            "attribute": name, "from": self.from.map(Kind::name), "to": to.name(), "visitors": self.visitors,
            "converted": self.converted, "removed": self.visitors - self.converted, "unreadable": self.unreadable,
            "publishes_catalogue": self.in_catalogue, "done": done,
        })
    }
}

/// Why an attribute keeps its kind.
#[derive(Debug, thiserror::Error)]
pub enum RetypeError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The name is bad, or there is no room for another one.
    #[error(transparent)]
    Name(#[from] DictionaryError),
    /// The current catalogue has a filter that the new kind does not fit.
    #[error("a filter of the current catalogue does not fit the new type: change the catalogue first")]
    Catalogue(#[source] ApplyError),
}

impl From<rusqlite::Error> for RetypeError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}

/// What a change would come to; changes nothing.
///
/// # Errors
/// [`RetypeError`].
pub fn plan(conn: &mut Connection, tenant: &Known, name: &str, to: Kind) -> Result<Plan, RetypeError> {
    let (before, current) = (load(conn, tenant.no)?, catalogue::kept(conn, tenant.no, None)?);
    let mut plan = Plan { from: before.find(name).map(|(_, kind)| kind), ..Plan::default() };
    plan.in_catalogue = current.is_some_and(|current| names_it(&current.document, name));
    let retired = {
        // Rolled back at once: who folds waits for no look at all visitors.
        let tx = conn.transaction()?;
        rename(&tx, tenant.no, name, to)?;
        check(&tx, tenant, plan.in_catalogue)?;
        retired(&load(&tx, tenant.no)?, name)
    };
    let mut after = 0;
    while let Some((last, rows)) = page(conn, tenant.no, after)? {
        after = last;
        for (_, attributes) in rows {
            let Some(map) = stored_attributes(&attributes) else {
                plan.unreadable += 1;
                continue;
            };
            let values: Vec<&Value> = retired.iter().filter_map(|(token, _)| map.get(*token)).collect();
            plan.visitors += u64::from(!values.is_empty());
            plan.converted += u64::from(values.into_iter().any(|value| value.clone().convert(to).is_some()));
        }
    }
    Ok(plan)
}

/// Changes the kind, then the stored values in several transactions. One that was interrupted goes on when it runs
/// again.
///
/// # Errors
/// [`RetypeError`]; then what was written stays, and running it again writes the rest.
pub fn apply(
    conn: &mut Connection,
    rules: &Rules,
    given: impl Fn() -> Result<Given, StoreError>,
    tenant: &Known,
    name: &str,
    to: Kind,
) -> Result<(), RetypeError> {
    crate::store::write_txn::within(conn, rules, &Metrics::default(), given()?, |group| {
        change(group, tenant, name, to)
    })?;
    let retired = retired(&load(conn, tenant.no)?, name);
    let mut after = 0;
    while let Some((last, rows)) = page(conn, tenant.no, after)? {
        after = last;
        let mut given = given()?;
        let facts = rows.into_iter().filter_map(|(visitor, attributes)| {
            let id = FactId::from_bytes(given.random.first_chunk().copied()?);
            let fact = converted(visitor, &attributes, &retired, name, to, id)?;
            // Each has an id of its own.
            given.random = causeway_shared::random::Random::new(given.random).draw();
            Some(Checked { tenant: tenant.no, fact })
        });
        let facts: Vec<_> = facts.collect();
        if !facts.is_empty() {
            let record = Arc::new(Record { admin: true, ..Record::of(facts) });
            group::commit(conn, rules, &Metrics::default(), given, &[record], &[])?;
        }
    }
    Ok(())
}

/// The name's new token, and what is published for it.
fn change(group: &mut Group<'_>, tenant: &Known, name: &str, to: Kind) -> Result<(), RetypeError> {
    let tokens = rename(group.tx, tenant.no, name, to)?;
    for token in &tokens {
        crate::outbox::queue::put(group, tenant.no, Subject::Names(page_of(*token)), group.now)?;
    }
    let current = catalogue::kept(group.tx, tenant.no, None)?;
    let current = current.filter(|current| !tokens.is_empty() && names_it(&current.document, name));
    check(group.tx, tenant, current.is_some())?;
    if let Some(current) = current {
        catalogue::reissue(group, tenant, current.version)?;
    }
    Ok(())
}

/// Gives the name a token of the kind, and the token before a name of its own; gives the tokens that are others now,
/// none where the name has that kind already.
fn rename(conn: &Connection, tenant: TenantNo, name: &str, to: Kind) -> Result<Vec<Token>, RetypeError> {
    const RENAME: &str = "UPDATE attribute_names SET name = ?3 WHERE tenant = ?1 AND token = ?2";
    let names = load(conn, tenant)?;
    let mut changed = Vec::new();
    match names.find(name) {
        Some((_, kind)) if kind == to => return Ok(changed),
        Some((token, _)) => {
            conn.execute(RENAME, (tenant.0, token.0, retired_name(token, name)))?;
            changed.push(token);
        }
        None => {}
    }
    let token = names.next(name)?;
    put(conn, tenant, token, name, to)?;
    changed.push(token);
    Ok(changed)
}

/// The name of a token whose name has another one now.
fn retired_name(token: Token, name: &str) -> String {
    let mut retired = format!("_retired.{}.{name}", token.0);
    retired.truncate(limits::ATTRIBUTE_NAME_BYTES);
    retired
}

/// The tokens that a name had before, each with its name of now.
fn retired(names: &Dictionary, name: &str) -> Vec<(Token, String)> {
    let all = (0..u16::try_from(names.len()).unwrap_or(u16::MAX)).map(Token);
    let is_its = |token: &Token| names.get(*token).is_some_and(|(of, _)| of == retired_name(*token, name));
    all.filter(is_its).map(|token| (token, retired_name(token, name))).collect()
}

/// Whether the current catalogue fits the names as they are now.
fn check(conn: &Connection, tenant: &Known, is_named: bool) -> Result<(), RetypeError> {
    let Some(current) = catalogue::kept(conn, tenant.no, None)?.filter(|_| is_named) else { return Ok(()) };
    let document =
        serde_json::from_str(&current.document).map_err(|_| StoreError::Corrupt { what: "document of a catalogue" })?;
    catalogue::check(conn, tenant, document).map(drop).map_err(RetypeError::Catalogue)
}

pub(super) fn names_it(document: &str, name: &str) -> bool {
    // A name has no character that JSON escapes.
    document.contains(&format!("\"attributes.{name}\""))
}

/// The new value of a visitor's attribute, with the time at which the old one was written: a newer value of the new kind stays.
fn converted(
    visitor: VisitorId,
    attributes: &[u8],
    retired: &[(Token, String)],
    name: &str,
    to: Kind,
    id: FactId,
) -> Option<Fact> {
    let map = stored_attributes(attributes)?;
    let there = retired.iter().filter_map(|(token, retired)| Some((map.written(*token)?, map.get(*token)?, retired)));
    let there: Vec<_> = there.collect();
    let (at, value, _) = there.iter().max_by_key(|(at, ..)| *at)?;
    let value = (*value).clone().convert(to).map(|value| (name.to_owned(), Some(value)));
    let removed = there.iter().map(|(_, _, retired)| ((*retired).clone(), None));
    let what = What::Attributes { writes: value.into_iter().chain(removed).collect() };
    // The removal comes after what it removes.
    Some(Fact { position: 0, id, visitor, received: at + 1, at: at + 1, what })
}

/// A visitor's attributes from their column; `None` where they cannot be read.
pub(super) fn stored_attributes(column: &[u8]) -> Option<AttributeMap> {
    profile::attributes(CheckedBytes::open(column).ok()?).ok()
}

/// A page of a tenant's visitors with attributes, as their column has them.
pub(super) type Page = Vec<(VisitorId, Vec<u8>)>;

pub(super) fn page(conn: &Connection, tenant: TenantNo, after: i64) -> Result<Option<(i64, Page)>, StoreError> {
    const NEXT: &str = "SELECT row, visitor, attributes FROM visitors
        WHERE row > ?1 AND tenant = ?2 AND length(attributes) > 0 ORDER BY row LIMIT ?3";
    let mut statement = conn.prepare_cached(NEXT)?;
    let mut rows = statement.query((after, tenant.0, BATCH as i64))?;
    let (mut last, mut page) = (after, Page::new());
    while let Some(row) = rows.next()? {
        last = row.get(0)?;
        page.push((visitor_at(row, 1)?, row.get(2)?));
    }
    Ok((!page.is_empty()).then_some((last, page)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use causeway_shared::attributes::Value;
    use causeway_shared::wire::kv;
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::{NOW, Origin, fact, visitor};

    fn said(of: VisitorId, n: u32, name: &str, value: Value) -> Fact {
        fact(of, n, NOW + u64::from(n), What::Attributes { writes: vec![(name.to_owned(), Some(value))] })
    }

    fn has(origin: &Origin, n: u32) -> Json {
        let view = crate::views::read::View::folded(&origin.conn);
        crate::views::attributes::describe(&view, &origin.row("demo", visitor(n))).unwrap()["own"].clone()
    }

    #[test]
    fn a_change_of_an_attributes_kind_shows_what_it_does_and_then_converts_every_stored_value() {
        let mut origin = Origin::new();
        let text = |text: &str| Value::String(text.to_owned());
        for n in 1..=5 {
            origin.send("demo", &[said(visitor(n), n, "coupon", Value::Bool(true))]);
        }
        let tenant = origin.tenant("demo").clone();
        assert_eq!(origin.send("demo", &[said(visitor(6), 6, "coupon", text("SPRING"))]).accepted, 1);
        assert_eq!(has(&origin, 6), json!({}), "the first value said what it is");
        let document = json!({ "advertiser": [{ "id": "a" }], "campaign": [{ "id": "c", "advertiser": "a" }],
            "ad_group": [{ "id": "g", "campaign": "c", "targeting": { "attributes.coupon": "SPRING" } }] });
        let given = origin.given();
        let refused = catalogue::apply(&mut origin.conn, &origin.rules, given, &tenant, document.clone(), "tests");
        assert!(refused.is_err(), "a bool is no text");

        let plan = plan(&mut origin.conn, &tenant, "coupon", Kind::String).unwrap();
        let expected = Plan { from: Some(Kind::Bool), visitors: 5, converted: 5, ..Plan::default() };
        assert_eq!((plan, has(&origin, 1)), (expected, json!({ "coupon": true })), "it changes nothing");
        // As each transaction is given other random bits.
        let drawn = std::cell::Cell::new(0);
        let given = || {
            drawn.set(drawn.get() + 1);
            Ok(Given { now: NOW + 10, random: [drawn.get(); 32] })
        };
        for _ in 0..2 {
            apply(&mut origin.conn, &origin.rules, given, &tenant, "coupon", Kind::String).unwrap();
            assert_eq!((1..=5).map(|n| has(&origin, n)).collect::<Vec<_>>(), vec![json!({ "coupon": "true" }); 5]);
        }
        origin.now = NOW + 60_000;
        origin.send("demo", &[said(visitor(6), 60, "coupon", text("SPRING"))]);
        assert_eq!(has(&origin, 6), json!({ "coupon": "SPRING" }));
        let applied = catalogue::apply(&mut origin.conn, &origin.rules, given().unwrap(), &tenant, document, "tests");
        assert_eq!(applied.unwrap().version, 1);

        let misfit = super::plan(&mut origin.conn, &tenant, "coupon", Kind::Date).unwrap_err();
        assert!(matches!(misfit, RetypeError::Catalogue(_)));
        apply(&mut origin.conn, &origin.rules, given, &tenant, "coupon", Kind::Strings).unwrap();
        assert_eq!(has(&origin, 1), json!({ "coupon": ["true"] }));
        assert_eq!(catalogue::kept(&origin.conn, tenant.no, None).unwrap().unwrap().version, 2, "edges read it again");
        let mut values = BTreeMap::new();
        origin.settle(&mut values);
        let names = kv::decode_names("c:demo:attributes:0", values["c:demo:attributes:0"].as_bytes()).unwrap();
        assert_eq!(names.last().unwrap(), &("coupon".to_owned(), Kind::Strings));
    }

    #[test]
    fn a_name_that_nobody_used_is_declared() {
        let mut origin = Origin::new();
        let tenant = origin.tenant("demo").clone();
        let given = || Ok(Given { now: NOW, random: [9; 32] });
        apply(&mut origin.conn, &origin.rules, given, &tenant, "born", Kind::Date).unwrap();
        let facts = ["2001-02-03", "soon"].map(|text| Value::String(text.to_owned()));
        let facts: Vec<Fact> = (1..).zip(facts).map(|(n, value)| said(visitor(n), n, "born", value)).collect();
        origin.send("demo", &facts);
        assert_eq!([has(&origin, 1), has(&origin, 2)], [json!({ "born": "2001-02-03" }), json!({})]);
        let bad = plan(&mut origin.conn, &tenant, "9born", Kind::Date).unwrap_err();
        assert!(matches!(bad, RetypeError::Name(DictionaryError::BadName)));
    }
}
