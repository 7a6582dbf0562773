//! Declares an attribute's kind, or changes it. First, a pending token of the new kind gets every stored value, and
//! each new write goes to it in addition to the old token ([`crate::store::names::resolve_names`]). Then the name moves
//! to the pending token in one transaction. At last, the values of the old token, which gets a reserved name, are
//! removed.
//!
//! A value that is not converted yet is therefore never taken for an absent one: a filter that excludes people by the
//! attribute excludes them at every moment. If the current catalogue names the attribute, the switch waits until the KV
//! has the snapshots with the converted values. An interrupted run continues when it runs again.

use std::sync::Arc;

use causeway_shared::base::ids::{FactId, Millis, VisitorId};
use causeway_shared::facts::attributes::{
    AttributeMap, AttributeValue, DictionaryError, NameDictionary, NameToken, ValueKind,
};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::segments::WriteStamp;
use causeway_shared::wire::profile;
use rusqlite::Connection;
use serde_json::{Value as Json, json};

use crate::base::integers::{signed, unsigned};
use crate::base::metrics::Metrics;
use crate::campaigns::catalogue::{self, ApplyError};
use crate::ingest::intake::{CheckedFact, LogRecord};
use crate::kv::publish;
use crate::outbox::kv_key::KvKey;
use crate::pipeline::commit;
use crate::store::names::{load_dictionary, page_of, pending_name, put_name, reserved_name};
use crate::store::tables::{attribute_names, outbox, people, visitors};
use crate::store::tenants::TenantContext;
use crate::store::write_txn::{TxnInputs, TxnRules, WriteTxn};
use crate::store::{CheckedBytes, StoreError, TenantNo, VisitorRow, visitor_at};

/// Rows of visitors that one transaction reads and writes.
const BATCH: usize = if cfg!(test) { 2 } else { 2_000 };

/// The plan of a change of kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetypePlan {
    /// The previous kind; `None` if the name is new.
    pub from: Option<ValueKind>,
    /// Visitors that have a value of another kind.
    pub visitors: u64,
    /// Visitors among them whose value can be converted.
    pub converted: u64,
    /// Visitors whose stored attributes cannot be read, and are left out.
    pub unreadable: u64,
    /// Whether a filter of the current catalogue names the attribute. The catalogue is then published again.
    pub in_catalogue: bool,
}

impl RetypePlan {
    /// The plan as the command line shows it.
    #[must_use]
    pub fn to_json(&self, name: &str, to: ValueKind, done: bool) -> Json {
        json!({
            "attribute": name, "from": self.from.map(ValueKind::name), "to": to.name(), "visitors": self.visitors,
            "converted": self.converted, "removed": self.visitors - self.converted, "unreadable": self.unreadable,
            "publishes_catalogue": self.in_catalogue, "done": done,
        })
    }
}

/// The reason why an attribute keeps its kind.
#[derive(Debug, thiserror::Error)]
pub enum RetypeError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The name is invalid, or the dictionary is full.
    #[error(transparent)]
    Name(#[from] DictionaryError),
    /// Some visitors cannot be read, and a filter of the catalogue may need their values.
    #[error(
        "{0} visitors cannot be read, so their values are not converted. The catalogue names the attribute, which keeps \
         its type until `causeway job run scrub` finds no damage"
    )]
    Unreadable(u64),
    /// Snapshots with converted values must still be published, and the caller does not wait.
    #[error(
        "every stored value is converted, but the attribute keeps its type until {0} keys are published, because the \
         catalogue names it: run this again while the origin serves"
    )]
    Unpublished(u64),
    /// The new kind does not fit a filter of the current catalogue.
    #[error("a filter of the current catalogue does not fit the new type: change the catalogue first")]
    Catalogue(#[source] ApplyError),
}

impl From<rusqlite::Error> for RetypeError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Store(e.into())
    }
}

/// Plans a change of kind; changes nothing.
///
/// # Errors
/// [`RetypeError`].
pub fn plan_retype(
    conn: &mut Connection,
    tenant: &TenantContext,
    name: &str,
    to: ValueKind,
) -> Result<RetypePlan, RetypeError> {
    let (before, current) = (load_dictionary(conn, tenant.no)?, catalogue::stored_version(conn, tenant.no, None)?);
    let mut plan = RetypePlan { from: before.find(name).map(|(_, kind)| kind), ..RetypePlan::default() };
    plan.in_catalogue = current.is_some_and(|current| names_it(&current.document, name));
    let retired = {
        // Rolled back before the visitors are read, so that the folding thread does not wait.
        let tx = conn.transaction()?;
        rename_attribute(&tx, tenant.no, name, to)?;
        check_tenant(&tx, tenant, plan.in_catalogue)?;
        retired_names(&load_dictionary(&tx, tenant.no)?, name)
    };
    let mut after = VisitorRow::default();
    while let Some((last, rows)) = visitor_page(conn, tenant.no, after)? {
        after = last;
        for (_, attributes) in rows {
            let Some(map) = stored_attributes(&attributes) else {
                plan.unreadable += 1;
                continue;
            };
            let values: Vec<&AttributeValue> = retired.iter().filter_map(|(token, _)| map.get(*token)).collect();
            plan.visitors += u64::from(!values.is_empty());
            plan.converted += u64::from(values.into_iter().any(|value| value.clone().convert(to).is_some()));
        }
    }
    Ok(plan)
}

/// Changes the kind. `wait` is called with the number of keys that must still be published, until there are none;
/// `false` ends the run.
///
/// # Errors
/// [`RetypeError`]; then the converted values stay, the name has its previous kind, and another run does the rest.
pub fn apply_retype(
    conn: &mut Connection,
    rules: &TxnRules,
    given: impl Fn() -> Result<TxnInputs, StoreError>,
    tenant: &TenantContext,
    name: &str,
    to: ValueKind,
    wait: impl Fn(u64) -> bool,
) -> Result<(), RetypeError> {
    let run = RetypeRun { rules, given: &given, tenant, name, to };
    if let Some(old) = run.prepare(conn)? {
        run.convert(conn, old)?;
        let mut published = PublishState::after(given()?.now, rules);
        while run.is_in_catalogue(conn)?
            && let Some(snapshots) = published.waits_for(conn, tenant.no, given()?.now, rules)?
        {
            if !wait(snapshots) {
                return Err(RetypeError::Unpublished(snapshots));
            }
        }
        run.switch(conn)?;
    }
    run.remove_retired(conn)
}

/// One change of kind.
struct RetypeRun<'a> {
    rules: &'a TxnRules,
    given: &'a dyn Fn() -> Result<TxnInputs, StoreError>,
    tenant: &'a TenantContext,
    name: &'a str,
    to: ValueKind,
}

impl RetypeRun<'_> {
    fn within<T>(
        &self,
        conn: &mut Connection,
        run: impl FnOnce(&mut WriteTxn<'_>) -> Result<T, RetypeError>,
    ) -> Result<T, RetypeError> {
        crate::store::write_txn::within_txn(conn, self.rules, &Metrics::default(), (self.given)()?, run)
    }

    fn is_in_catalogue(&self, conn: &Connection) -> Result<bool, StoreError> {
        let current = catalogue::stored_version(conn, self.tenant.no, None)?;
        Ok(current.is_some_and(|current| names_it(&current.document, self.name)))
    }

    /// Creates a pending token of the new kind for the name. Returns the name's current token, or `None` if nothing
    /// must be converted: the name has that kind, or is new and was declared.
    fn prepare(&self, conn: &mut Connection) -> Result<Option<NameToken>, RetypeError> {
        let Self { tenant, name, to, .. } = *self;
        {
            // A catalogue that does not fit the new kind is refused before anything is written.
            let tx = conn.transaction()?;
            rename_attribute(&tx, tenant.no, name, to)?;
            check_tenant(&tx, tenant, self.is_in_catalogue(&tx)?)?;
        }
        self.within(conn, |group| {
            let names = load_dictionary(group.tx, tenant.no)?;
            let Some((token, kind)) = names.find(name) else {
                self.publish(group, rename_attribute(group.tx, tenant.no, name, to)?)?;
                return Ok(None);
            };
            let pending = names.find(&pending_name(token, name));
            if let Some((pending, _)) = pending.filter(|(_, pending)| *pending != to || kind == to) {
                // The rest of an abandoned change to another kind; its values are removed with those of other retired
                // tokens.
                rename_token(group.tx, tenant.no, pending, &retired_name(pending, name))?;
                self.publish(group, vec![pending])?;
            }
            if kind == to {
                return Ok(None);
            }
            if pending.is_none_or(|(_, pending)| pending != to) {
                let pending = load_dictionary(group.tx, tenant.no)?.next(name)?;
                put_name(group.tx, tenant.no, pending, &pending_name(token, name), to)?;
                self.publish(group, vec![pending])?;
            }
            Ok(Some(token))
        })
    }

    fn publish(&self, group: &WriteTxn<'_>, tokens: Vec<NameToken>) -> Result<(), StoreError> {
        tokens
            .into_iter()
            .try_for_each(|token| publish::put_key(group, self.tenant.no, KvKey::Names(page_of(token)), group.now))
    }

    /// Writes every stored value of a token again under its own stamp, so that the pending token gets the converted
    /// value.
    fn convert(&self, conn: &mut Connection, old: NameToken) -> Result<(), RetypeError> {
        let pending =
            load_dictionary(conn, self.tenant.no)?.find(&pending_name(old, self.name)).map(|(token, _)| token);
        let mut unreadable = 0;
        self.each_page(conn, |visitor, attributes, id| {
            let Some(map) = stored_attributes(attributes) else {
                unreadable += 1;
                return None;
            };
            let written = |of: NameToken| map.writes().find(|(token, ..)| *token == of);
            let (_, stamp, value) = written(old)?;
            let converted = pending.and_then(written);
            let is_due = converted.map_or(value.is_some(), |(_, converted, _)| converted < stamp);
            is_due.then(|| rewrite_fact(visitor, stamp, self.name, value.cloned(), id))
        })?;
        if unreadable > 0 && self.is_in_catalogue(conn)? {
            return Err(RetypeError::Unreadable(unreadable));
        }
        Ok(())
    }

    /// Gives the name to its pending token, and publishes the dictionary and the catalogue.
    fn switch(&self, conn: &mut Connection) -> Result<(), RetypeError> {
        let Self { tenant, name, to, .. } = *self;
        self.within(conn, |group| {
            let names = load_dictionary(group.tx, tenant.no)?;
            let old = names.find(name).ok_or(StoreError::Corrupt { what: "name of an attribute" })?.0;
            let pending = names.find(&pending_name(old, name)).filter(|(_, kind)| *kind == to);
            let (pending, _) = pending.ok_or(StoreError::Corrupt { what: "pending name of an attribute" })?;
            rename_token(group.tx, tenant.no, old, &retired_name(old, name))?;
            rename_token(group.tx, tenant.no, pending, name)?;
            self.publish(group, vec![old, pending])?;
            let current = catalogue::stored_version(group.tx, tenant.no, None)?;
            let current = current.filter(|current| names_it(&current.document, name));
            check_tenant(group.tx, tenant, current.is_some())?;
            if let Some(current) = current {
                catalogue::reissue(group, tenant, current.version)?;
            }
            Ok(())
        })
    }

    /// Removes the values of all earlier tokens of the name.
    fn remove_retired(&self, conn: &mut Connection) -> Result<(), RetypeError> {
        let retired = retired_names(&load_dictionary(conn, self.tenant.no)?, self.name);
        self.each_page(conn, |visitor, attributes, id| removal_fact(visitor, attributes, &retired, id))
    }

    /// Folds the fact that `make` returns for each visitor with attributes, in several transactions. Each fact gets its
    /// own id.
    fn each_page(
        &self,
        conn: &mut Connection,
        mut make: impl FnMut(VisitorId, &[u8], FactId) -> Option<Fact>,
    ) -> Result<(), RetypeError> {
        let mut after = VisitorRow::default();
        while let Some((last, rows)) = visitor_page(conn, self.tenant.no, after)? {
            after = last;
            let mut given = (self.given)()?;
            let facts = rows.into_iter().filter_map(|(visitor, attributes)| {
                let id = FactId::from_bytes(given.random.first_chunk().copied()?);
                let fact = make(visitor, &attributes, id)?;
                given.random = causeway_shared::base::random::Random::new(given.random).draw();
                Some(CheckedFact { tenant: self.tenant.no, fact })
            });
            let facts: Vec<_> = facts.collect();
            if !facts.is_empty() {
                let record = Arc::new(LogRecord { admin: true, ..LogRecord::of(facts) });
                commit::commit_group(conn, self.rules, &Metrics::default(), given, &[record], &[])?;
            }
        }
        Ok(())
    }
}

/// Whether the KV has everything that was stored up to a time.
struct PublishState {
    /// Keys that became due until this time must be written.
    until: Millis,
    /// Time at which all of them were written.
    since: Option<Millis>,
}

impl PublishState {
    /// The state for everything stored now. A person's other snapshots become due after the sibling pause.
    fn after(now: Millis, rules: &TxnRules) -> Self {
        Self { until: now.saturating_add(rules.sibling_publish_ms), since: None }
    }

    /// Number of keys and people still to be published, 0 while edges may still read older values, and `None` once
    /// every edge reads the new ones.
    fn waits_for(
        &mut self,
        conn: &Connection,
        tenant: TenantNo,
        now: Millis,
        rules: &TxnRules,
    ) -> Result<Option<u64>, StoreError> {
        let count = |sql, values: &[i64]| {
            conn.prepare_cached(sql)?.query_row(rusqlite::params_from_iter(values), |row| row.get(0).map(unsigned))
        };
        let siblings: u64 = count(people::PEOPLE_COUNT_SIBLINGS_DUE_OF_TENANT, &[tenant.0, signed(self.until)])?;
        if siblings > 0 {
            // The snapshots of siblings become due when they enter the outbox.
            self.until = self.until.max(now);
        }
        let keys: u64 = count(outbox::OUTBOX_COUNT_PENDING_SNAPSHOTS, &[tenant.0, signed(self.until), signed(now)])?;
        if siblings + keys > 0 || now < self.until {
            self.since = None;
            return Ok(Some(siblings + keys));
        }
        let since = *self.since.get_or_insert(now);
        Ok((now < since.saturating_add(rules.kv_settled_ms)).then_some(0))
    }
}

/// The same write of a value under another FactId.
fn rewrite_fact(visitor: VisitorId, stamp: WriteStamp, name: &str, value: Option<AttributeValue>, id: FactId) -> Fact {
    let (received, position) = stamp.receipt();
    Fact {
        position,
        id,
        visitor,
        received,
        at: stamp.at,
        what: FactKind::Attributes { writes: vec![(name.to_owned(), value)] },
    }
}

/// Gives the name a token of the kind, and the old token a reserved name. Returns the changed tokens, none if the name
/// has that kind already.
fn rename_attribute(
    conn: &Connection,
    tenant: TenantNo,
    name: &str,
    to: ValueKind,
) -> Result<Vec<NameToken>, RetypeError> {
    let names = load_dictionary(conn, tenant)?;
    let mut changed = Vec::new();
    match names.find(name) {
        Some((_, kind)) if kind == to => return Ok(changed),
        Some((token, _)) => {
            rename_token(conn, tenant, token, &retired_name(token, name))?;
            changed.push(token);
        }
        None => {}
    }
    let token = names.next(name)?;
    put_name(conn, tenant, token, name, to)?;
    changed.push(token);
    Ok(changed)
}

fn rename_token(conn: &Connection, tenant: TenantNo, token: NameToken, name: &str) -> Result<(), StoreError> {
    conn.prepare_cached(attribute_names::ATTRIBUTE_NAMES_RENAME)?.execute((tenant.0, token.0, name))?;
    Ok(())
}

/// The reserved name of a token that lost its name.
fn retired_name(token: NameToken, name: &str) -> String {
    reserved_name("_retired", token, name)
}

/// The earlier tokens of a name, each with its reserved name.
fn retired_names(names: &NameDictionary, name: &str) -> Vec<(NameToken, String)> {
    let all = (0..u16::try_from(names.len()).unwrap_or(u16::MAX)).map(NameToken);
    let is_its = |token: &NameToken| names.get(*token).is_some_and(|(of, _)| of == retired_name(*token, name));
    all.filter(is_its).map(|token| (token, retired_name(token, name))).collect()
}

/// Checks that the current catalogue fits the current names.
fn check_tenant(conn: &Connection, tenant: &TenantContext, is_named: bool) -> Result<(), RetypeError> {
    let Some(current) = catalogue::stored_version(conn, tenant.no, None)?.filter(|_| is_named) else { return Ok(()) };
    let document =
        serde_json::from_str(&current.document).map_err(|_| StoreError::Corrupt { what: "document of a catalogue" })?;
    catalogue::check(conn, tenant, document).map(drop).map_err(RetypeError::Catalogue)
}

pub(super) fn names_it(document: &str, name: &str) -> bool {
    // JSON escapes no character of a name.
    document.contains(&format!("\"attributes.{name}\""))
}

/// The fact that removes a visitor's values of retired tokens; `None` if it has none.
fn removal_fact(visitor: VisitorId, attributes: &[u8], retired: &[(NameToken, String)], id: FactId) -> Option<Fact> {
    let map = stored_attributes(attributes)?;
    let there = retired.iter().filter(|(token, _)| map.get(*token).is_some());
    let there: Vec<&(NameToken, String)> = there.collect();
    // The removal has a later time than the values.
    let at = there.iter().filter_map(|(token, _)| map.written(*token)).max()? + 1;
    let writes = there.iter().map(|(_, retired)| (retired.clone(), None)).collect();
    Some(Fact { position: 0, id, visitor, received: at, at, what: FactKind::Attributes { writes } })
}

/// Decodes a visitor's attributes; `None` if they cannot be read.
pub(super) fn stored_attributes(column: &[u8]) -> Option<AttributeMap> {
    profile::decode_attributes(CheckedBytes::open(column).ok()?).ok()
}

/// A page of a tenant's visitors with their stored attributes.
pub(super) type Page = Vec<(VisitorId, Vec<u8>)>;

pub(super) fn visitor_page(
    conn: &Connection,
    tenant: TenantNo,
    after: VisitorRow,
) -> Result<Option<(VisitorRow, Page)>, StoreError> {
    let mut statement = conn.prepare_cached(visitors::VISITORS_PAGE_WITH_ATTRIBUTES)?;
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
    use causeway_shared::ads::decision::DescribedPerson;
    use causeway_shared::facts::attributes::{AttributeValue, FiniteNumber};
    use causeway_shared::profiles::view::JoinedView;
    use causeway_shared::targeting::filter::FilterSubject;
    use causeway_shared::wire::kv;
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::{NOW, Origin, fact, snapshot, visitor};

    fn said(of: VisitorId, n: u32, name: &str, value: AttributeValue) -> Fact {
        fact(of, n, NOW + u64::from(n), FactKind::Attributes { writes: vec![(name.to_owned(), Some(value))] })
    }

    fn has(origin: &Origin, n: u32) -> Json {
        let view = crate::views::read::StoreView::folded(&origin.conn);
        crate::testing::as_json(
            crate::views::attributes::describe_attributes(&view, &origin.row("demo", visitor(n))).unwrap(),
        )["own"]
            .clone()
    }

    #[test]
    fn a_change_of_an_attributes_kind_shows_what_it_does_and_then_converts_every_stored_value() {
        let mut origin = Origin::new();
        let text = |text: &str| AttributeValue::String(text.to_owned());
        for n in 1..=5 {
            origin.send("demo", &[said(visitor(n), n, "coupon", AttributeValue::Bool(true))]);
        }
        let tenant = origin.tenant("demo").clone();
        assert_eq!(origin.send("demo", &[said(visitor(6), 6, "coupon", text("SPRING"))]).accepted, 1);
        assert_eq!(has(&origin, 6), json!({}), "the first value said what it is");
        let document = json!({ "advertiser": [{ "id": "a" }], "campaign": [{ "id": "c", "advertiser": "a" }],
            "ad_group": [{ "id": "g", "campaign": "c", "targeting": { "attributes.coupon": "SPRING" } }] });
        let given = origin.given();
        let refused = catalogue::apply(&mut origin.conn, &origin.rules, given, &tenant, document.clone(), "tests");
        assert!(refused.is_err(), "a bool is no text");

        let plan = plan_retype(&mut origin.conn, &tenant, "coupon", ValueKind::String).unwrap();
        let expected = RetypePlan { from: Some(ValueKind::Bool), visitors: 5, converted: 5, ..RetypePlan::default() };
        assert_eq!((plan, has(&origin, 1)), (expected, json!({ "coupon": true })), "it changes nothing");
        // Each transaction gets other random bits.
        let drawn = std::cell::Cell::new(0);
        let given = || {
            drawn.set(drawn.get() + 1);
            Ok(TxnInputs { now: NOW + 10, random: [drawn.get(); 32] })
        };
        for _ in 0..2 {
            apply_retype(&mut origin.conn, &origin.rules, given, &tenant, "coupon", ValueKind::String, |_| false)
                .unwrap();
            assert_eq!((1..=5).map(|n| has(&origin, n)).collect::<Vec<_>>(), vec![json!({ "coupon": "true" }); 5]);
        }
        origin.now = NOW + 60_000;
        origin.send("demo", &[said(visitor(6), 60, "coupon", text("SPRING"))]);
        assert_eq!(has(&origin, 6), json!({ "coupon": "SPRING" }));
        let applied = catalogue::apply(&mut origin.conn, &origin.rules, given().unwrap(), &tenant, document, "tests");
        assert_eq!(applied.unwrap().version, 1);

        let misfit = super::plan_retype(&mut origin.conn, &tenant, "coupon", ValueKind::Date).unwrap_err();
        assert!(matches!(misfit, RetypeError::Catalogue(_)));
        retype_while_published(&mut origin, "coupon", ValueKind::Strings);
        assert_eq!(has(&origin, 1), json!({ "coupon": ["true"] }));
        assert_eq!(
            catalogue::stored_version(&origin.conn, tenant.no, None).unwrap().unwrap().version,
            2,
            "edges read it again"
        );
        let mut values = BTreeMap::new();
        origin.settle(&mut values);
        let names = kv::decode_names("c:demo:attributes:0", values["c:demo:attributes:0"].as_bytes()).unwrap();
        assert_eq!(names.last().unwrap(), &("coupon".to_owned(), ValueKind::Strings));
    }

    /// Repeats the run until nothing is left to be published, with a consumer between two runs.
    fn retype_while_published(origin: &mut Origin, name: &str, to: ValueKind) {
        let tenant = origin.tenant("demo").clone();
        for _ in 0..5 {
            let now = std::cell::Cell::new(origin.now);
            let drawn = std::cell::Cell::new(100);
            let given = || {
                drawn.set(drawn.get() + 1);
                Ok(TxnInputs { now: now.get(), random: [drawn.get(); 32] })
            };
            let wait = |keys: u64| {
                now.set(now.get() + 10_000);
                keys == 0
            };
            let done = apply_retype(&mut origin.conn, &origin.rules, given, &tenant, name, to, wait);
            origin.now = now.get();
            match done {
                Err(RetypeError::Unpublished(_)) => origin.settle(&mut BTreeMap::new()),
                done => return done.unwrap(),
            }
        }
        unreachable!("the outbox is never empty");
    }

    /// The visitors that match a filter by their published snapshots, and by the store.
    fn matching(origin: &Origin, kv: &BTreeMap<String, String>, document: &Json) -> [Vec<u32>; 2] {
        let tenant = origin.tenant("demo");
        let filter = crate::audience::query::parse_filter(&origin.conn, tenant, document).unwrap().unwrap();
        let (mut published, mut stored) = (Vec::new(), Vec::new());
        for n in 1..=5 {
            let mut view = JoinedView::default();
            view.add_snapshot(snapshot(kv, visitor(n)));
            let described = DescribedPerson::of(&view.of(visitor(n)), NOW);
            let subject = FilterSubject { person: Some(described.person()), ..FilterSubject::default() };
            published.extend(filter.matches(&subject).then_some(n));
            let person = origin.row("demo", visitor(n)).person.unwrap();
            let someone = crate::audience::person_row::read(&origin.conn, person).unwrap().unwrap();
            stored.extend(someone.matches_filter(&filter, NOW).then_some(n));
        }
        [published, stored]
    }

    #[test]
    fn who_opted_out_matches_no_filter_that_excludes_them_at_any_moment_of_a_change_of_kind() {
        let (mut origin, mut kv) = (Origin::new(), BTreeMap::new());
        for n in 1..=5 {
            origin.send("demo", &[said(visitor(n), n, "optout", AttributeValue::Bool(true))]);
        }
        let tenant = origin.tenant("demo").clone();
        let document = json!({ "advertiser": [{ "id": "a" }], "campaign": [{ "id": "c", "advertiser": "a" }],
            "ad_group": [{ "id": "g", "campaign": "c", "targeting": { "attributes.optout": { "$exists": false } } }] });
        let given = origin.given();
        catalogue::apply(&mut origin.conn, &origin.rules, given, &tenant, document, "tests").unwrap();
        origin.settle(&mut kv);
        let excluding = json!({ "attributes.optout": { "$exists": false } });
        let none: [Vec<u32>; 2] = [Vec::new(), Vec::new()];
        assert_eq!(matching(&origin, &kv, &excluding), none);
        // Each run stops as soon as it would wait, and readers see the state of that moment.
        let mut kinds = Vec::new();
        for round in 0..6 {
            let now = std::cell::Cell::new(origin.now + 1);
            let random = origin.given().random;
            let drawn = std::cell::Cell::new(0_u8);
            let given = || {
                drawn.set(drawn.get() + 1);
                Ok(TxnInputs { now: now.get(), random: random.map(|byte| byte ^ drawn.get()) })
            };
            let wait = |keys: u64| {
                now.set(now.get() + 10_000);
                keys == 0
            };
            let done = apply_retype(&mut origin.conn, &origin.rules, given, &tenant, "optout", ValueKind::String, wait);
            origin.now = now.get();
            assert_eq!(matching(&origin, &kv, &excluding), none, "round {round}");
            kinds.push(load_dictionary(&origin.conn, tenant.no).unwrap().find("optout").unwrap().1);
            if done.is_ok() {
                break;
            }
            // A page writes the attribute again in the meantime.
            let again = said(visitor(2), 1_000 + round, "optout", AttributeValue::Bool(true));
            origin.now += 5_000;
            origin.send("demo", &[again]);
            origin.settle(&mut kv);
        }
        assert_eq!((kinds.first(), kinds.last()), (Some(&ValueKind::Bool), Some(&ValueKind::String)));
        origin.settle(&mut kv);
        assert_eq!(matching(&origin, &kv, &excluding), none);
        assert_eq!((1..=5).map(|n| has(&origin, n)).collect::<Vec<_>>(), vec![json!({ "optout": "true" }); 5]);
    }

    #[test]
    fn a_write_during_a_change_of_kind_is_converted_and_a_removal_stays_one() {
        let mut origin = Origin::new();
        for n in 1..=3 {
            origin.send("demo", &[said(visitor(n), n, "age", AttributeValue::Float(FiniteNumber::new(30.0).unwrap()))]);
        }
        let tenant = origin.tenant("demo").clone();
        let given = origin.given();
        let given = || Ok(given);
        let run =
            RetypeRun { rules: &origin.rules, given: &given, tenant: &tenant, name: "age", to: ValueKind::String };
        let old = run.prepare(&mut origin.conn).unwrap().unwrap();
        run.convert(&mut origin.conn, old).unwrap();
        origin.now = NOW + 60_000;
        let removed = fact(visitor(2), 60, NOW + 60, FactKind::Attributes { writes: vec![("age".to_owned(), None)] });
        origin.send(
            "demo",
            &[said(visitor(1), 50, "age", AttributeValue::Float(FiniteNumber::new(31.0).unwrap())), removed],
        );
        assert_eq!(
            [has(&origin, 1), has(&origin, 2)],
            [json!({ "age": 31 }), json!({})],
            "its kind is the previous one"
        );
        let given = origin.given();
        apply_retype(&mut origin.conn, &origin.rules, || Ok(given), &tenant, "age", ValueKind::String, |_| false)
            .unwrap();
        assert_eq!([1, 2, 3].map(|n| has(&origin, n)), [json!({ "age": "31" }), json!({}), json!({ "age": "30" })]);
    }

    #[test]
    fn a_name_that_nobody_used_is_declared() {
        let mut origin = Origin::new();
        let tenant = origin.tenant("demo").clone();
        let given = || Ok(TxnInputs { now: NOW, random: [9; 32] });
        apply_retype(&mut origin.conn, &origin.rules, given, &tenant, "born", ValueKind::Date, |_| false).unwrap();
        let facts = ["2001-02-03", "soon"].map(|text| AttributeValue::String(text.to_owned()));
        let facts: Vec<Fact> = (1..).zip(facts).map(|(n, value)| said(visitor(n), n, "born", value)).collect();
        origin.send("demo", &facts);
        assert_eq!([has(&origin, 1), has(&origin, 2)], [json!({ "born": "2001-02-03" }), json!({})]);
        let bad = plan_retype(&mut origin.conn, &tenant, "9born", ValueKind::Date).unwrap_err();
        assert!(matches!(bad, RetypeError::Name(DictionaryError::BadName)));
    }
}
