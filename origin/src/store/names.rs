//! Names of attributes. A name gets its token and its value kind when the folding thread folds the first fact that uses
//! it. It keeps them until `retype` changes the kind or `forget` removes the name. Nothing else depends on the order of
//! facts: the first use of a name sets its kind, and the removal of an unused name writes nothing.

pub mod events;

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::DAY_MS;
use causeway_shared::facts::attributes::{
    AttributeError, AttributeValue, DictionaryError, NameDictionary, NameToken, ValueKind,
};
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::settings::config::NamePolicy;
use rusqlite::Connection;

use crate::base::integers::signed;
use crate::store::tables::{attribute_names, names_brought};
use crate::store::{StoreError, TenantNo};

/// Loads a tenant's attribute names.
///
/// # Errors
/// [`StoreError`].
pub fn load_dictionary(conn: &Connection, tenant: TenantNo) -> Result<NameDictionary, StoreError> {
    let corrupt = || StoreError::Corrupt { what: "name of an attribute" };
    let mut statement = conn.prepare_cached(attribute_names::ATTRIBUTE_NAMES_OF_TENANT)?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, u8>(1)?, row.get::<_, u16>(2)?));
    let entries = statement.query_map([tenant.0], read)?.enumerate().map(|(index, row)| {
        let (name, kind, token) = row?;
        Ok((name, ValueKind::from_code(kind).filter(|_| usize::from(token) == index).ok_or_else(corrupt)?))
    });
    let entries: Vec<(String, ValueKind)> = entries.collect::<Result<_, StoreError>>()?;
    NameDictionary::from_entries(entries).ok_or_else(corrupt)
}

/// Attribute names that a transaction's facts use, loaded at the first fact of a tenant.
#[derive(Debug, Default)]
pub struct GroupNames {
    of_tenant: BTreeMap<TenantNo, NameDictionary>,
    /// Dictionary pages with new names.
    pub changed: BTreeSet<(TenantNo, u16)>,
    /// Reason codes of the refused attributes.
    pub refused: Vec<&'static str>,
}

impl GroupNames {
    /// Adds the new names of a fact. A refused name does not affect its neighbours. Names from a page (`page`) are
    /// bounded by the tenant's policy and the day's quotas; names from the admin API (`None`) only by the room left.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn bring(
        &mut self,
        conn: &Connection,
        tenant: TenantNo,
        fact: &Fact,
        page: Option<NamePolicy>,
        now: Millis,
    ) -> Result<(), StoreError> {
        if let std::collections::btree_map::Entry::Vacant(place) = self.of_tenant.entry(tenant) {
            place.insert(load_dictionary(conn, tenant)?);
        }
        let Some(names) = self.of_tenant.get_mut(&tenant) else { return Ok(()) };
        let FactKind::Attributes { writes } = &fact.what else { return Ok(()) };
        let is_new = |(name, value): &&(String, Option<AttributeValue>)| value.is_some() && names.find(name).is_none();
        let new: BTreeSet<&String> = writes.iter().filter(is_new).map(|(name, _)| name).collect();
        let used = names.used();
        let left = match page {
            Some(_) if !new.is_empty() => name_quota(conn, tenant, fact.visitor, NameQuota::ATTRIBUTES, now)?,
            _ => usize::MAX,
        };
        let lets = |names: usize| page.is_none_or(|policy| policy.lets_pages(names) && names - used < left);
        let (_, refused) = resolve_names(names, fact, lets);
        if page.is_some() && names.used() > used {
            note_brought(conn, tenant, fact.visitor, NameQuota::ATTRIBUTES, names.used() - used, now)?;
        }
        self.refused.extend(refused.iter().map(AttributeError::code));
        for name in new {
            let Some((token, kind)) = names.find(name) else { continue };
            put_name(conn, tenant, token, name, kind)?;
            self.changed.insert((tenant, page_of(token)));
        }
        Ok(())
    }

    /// A fact's writes by token, after [`Self::bring`] for the fact.
    pub fn tokens(&mut self, tenant: TenantNo, fact: &Fact) -> Vec<(NameToken, Option<AttributeValue>)> {
        self.of_tenant.get_mut(&tenant).map(|names| resolve_names(names, fact, |_| false).0).unwrap_or_default()
    }
}

/// Gives a name and a kind to a token that is new or had another name.
pub(crate) fn put_name(
    conn: &Connection,
    tenant: TenantNo,
    token: NameToken,
    name: &str,
    kind: ValueKind,
) -> Result<(), StoreError> {
    conn.prepare_cached(attribute_names::ATTRIBUTE_NAMES_UPSERT)?.execute((tenant.0, token.0, name, kind.code()))?;
    Ok(())
}

/// The page of the dictionary that holds a token.
pub(crate) fn page_of(token: NameToken) -> u16 {
    u16::try_from(usize::from(token.0) / limits::ATTRIBUTE_PAGE).unwrap_or(u16::MAX)
}

/// Quota of new names from pages for one day.
#[derive(Debug, Clone, Copy)]
struct NameQuota {
    /// Code in column `names_brought.what`.
    code: u8,
    /// Most new names from one visitor.
    of_visitor: usize,
    /// Most new names in one tenant.
    of_tenant: usize,
}

impl NameQuota {
    const ATTRIBUTES: Self =
        Self { code: 0, of_visitor: limits::ATTRIBUTE_NAMES_A_VISITOR, of_tenant: limits::ATTRIBUTE_NAMES_A_DAY };
    const EVENTS: Self =
        Self { code: 1, of_visitor: limits::AUDIENCE_EVENTS_A_VISITOR, of_tenant: limits::AUDIENCE_EVENTS_A_DAY };
}

/// Number of names that pages of a visitor may still add today.
fn name_quota(
    conn: &Connection,
    tenant: TenantNo,
    visitor: VisitorId,
    of: NameQuota,
    now: Millis,
) -> Result<usize, StoreError> {
    let key = (tenant.0, of.code, signed(now / DAY_MS), visitor.as_bytes());
    let (all, own): (u32, u32) = conn
        .prepare_cached(names_brought::NAMES_BROUGHT_SUMS_OF_DAY)?
        .query_row(key, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let left = |most: usize, brought: u32| most.saturating_sub(brought as usize);
    Ok(left(of.of_visitor, own).min(left(of.of_tenant, all)))
}

/// Records that pages of a visitor added names today, and deletes the rows of previous days.
fn note_brought(
    conn: &Connection,
    tenant: TenantNo,
    visitor: VisitorId,
    of: NameQuota,
    names: usize,
    now: Millis,
) -> Result<(), StoreError> {
    let day = signed(now / DAY_MS);
    conn.prepare_cached(names_brought::NAMES_BROUGHT_DELETE_OTHER_DAYS)?.execute((tenant.0, of.code, day))?;
    conn.prepare_cached(names_brought::NAMES_BROUGHT_ADD)?.execute((
        tenant.0,
        of.code,
        day,
        visitor.as_bytes(),
        names as i64,
    ))?;
    Ok(())
}

/// Removes an erased visitor from the record of added names. Its names stay and still count for the tenant's quota of
/// the day, under no visitor.
///
/// # Errors
/// [`StoreError`].
pub fn forget_visitor(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<(), StoreError> {
    conn.prepare_cached(names_brought::NAMES_BROUGHT_COPY_TO_VISITOR)?.execute((
        tenant.0,
        visitor.as_bytes(),
        VisitorId::ANONYMOUS.as_bytes(),
    ))?;
    conn.prepare_cached(names_brought::NAMES_BROUGHT_DELETE_OF_VISITOR)?.execute((tenant.0, visitor.as_bytes()))?;
    Ok(())
}

/// A fact's writes by token, and the reasons for refused writes. Removing a name that was never used writes nothing.
/// `lets` says whether a dictionary with that number of names may get one more. While a name's kind is being changed,
/// each write also goes to the pending token in the new kind, so that no value is left to be converted after the
/// change.
pub fn resolve_names(
    names: &mut NameDictionary,
    fact: &Fact,
    lets: impl Fn(usize) -> bool,
) -> (Vec<(NameToken, Option<AttributeValue>)>, Vec<AttributeError>) {
    let FactKind::Attributes { writes } = &fact.what else { return Default::default() };
    let (mut tokens, mut refused) = (Vec::new(), Vec::new());
    for (name, value) in writes {
        let resolved = match value {
            None => names.find(name).map(|(token, _)| (token, None)),
            Some(_) if names.find(name).is_none() && !lets(names.used()) => {
                refused.push(DictionaryError::Unknown.into());
                None
            }
            Some(value) => match names.accept(name, value.clone()) {
                Ok((token, value)) => Some((token, Some(value))),
                Err(e) => {
                    refused.push(e);
                    None
                }
            },
        };
        let Some((token, value)) = resolved else { continue };
        if let Some((pending, kind)) = names.find(&pending_name(token, name)) {
            tokens.push((pending, value.clone().and_then(|value| value.convert(kind))));
        }
        tokens.push((token, value));
    }
    (tokens, refused)
}

/// Name of the token that replaces a name's token once all values are converted.
pub(crate) fn pending_name(token: NameToken, name: &str) -> String {
    reserved_name("_pending", token, name)
}

/// A reserved name that no page can add: the state of its token, and the token's previous or future name.
pub(crate) fn reserved_name(state: &str, token: NameToken, name: &str) -> String {
    let mut reserved = format!("{state}.{}.{name}", token.0);
    reserved.truncate(limits::ATTRIBUTE_NAME_BYTES);
    reserved
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::outbox::kv_key::names_subject;
    use crate::testing::{NOW, Origin, fact, visitor};
    use causeway_shared::facts::fact::ErasureScope;
    use causeway_shared::wire::kv;
    use serde_json::{Value as Json, json};

    fn said(of: VisitorId, n: u32, set: &Json) -> Fact {
        let one = |(name, value): (&String, &Json)| (name.clone(), AttributeValue::from_json(value).ok());
        fact(
            of,
            n,
            NOW + u64::from(n),
            FactKind::Attributes { writes: set.as_object().unwrap().iter().map(one).collect() },
        )
    }

    fn has(origin: &Origin, of: VisitorId) -> Json {
        let view = crate::views::read::StoreView::folded(&origin.conn);
        crate::testing::as_json(crate::views::attributes::describe_attributes(&view, &origin.row("demo", of)).unwrap())
            ["own"]
            .clone()
    }

    #[test]
    fn a_write_for_a_person_is_newer_than_a_siblings_value_from_a_fast_clock() {
        let mut origin = Origin::new();
        let logins = [1, 2].map(|v| origin.login(visitor(v), 9, NOW, "ann"));
        let ahead = said(visitor(1), 300_000, &json!({ "tier": "gold" }));
        origin.send("demo", &[logins.to_vec(), vec![ahead]].concat());
        let write: crate::views::attributes::AttributeWrite =
            serde_json::from_value(json!({ "set": { "tier": "silver" } })).unwrap();
        let of = origin.row("demo", visitor(2));
        let at =
            crate::views::attributes::stamp_after(&crate::views::read::StoreView::folded(&origin.conn), &of, &write)
                .unwrap();
        origin.now = NOW + 60_000;
        let silver = said(visitor(2), u32::try_from(at - NOW).unwrap(), &json!({ "tier": "silver" }));
        origin.admin("demo", &[silver]);
        let view = crate::views::read::StoreView::folded(&origin.conn);
        let shown = crate::testing::as_json(
            crate::views::attributes::describe_attributes(&view, &origin.row("demo", visitor(1))).unwrap(),
        );
        assert_eq!(shown["view"], json!({ "tier": "silver" }));
    }

    #[test]
    fn attribute_names_get_permanent_tokens_in_the_order_of_first_use() {
        let mut origin = Origin::new();
        let (a, b) = (visitor(1), visitor(2));
        origin.send("demo", &[said(a, 1, &json!({ "shoe_size": 42, "vip": true }))]);
        origin.send("demo", &[said(b, 2, &json!({ "born": "2001-02-03", "shoe_size": 39 }))]);
        origin.send("other", &[said(a, 3, &json!({ "vip": "yes" }))]);
        let names = load_dictionary(&origin.conn, origin.tenant("demo").no).unwrap();
        let all: Vec<(&str, &str)> = names.page(0).iter().map(|(name, kind)| (name.as_str(), kind.name())).collect();
        assert_eq!(all, [("shoe_size", "float"), ("vip", "bool"), ("born", "string")]);
        assert_eq!(has(&origin, a), json!({ "shoe_size": 42, "vip": true }));
        assert_eq!(has(&origin, b), json!({ "shoe_size": 39, "born": "2001-02-03" }));
        let mut values = BTreeMap::new();
        origin.settle(&mut values);
        let page = kv::decode_names("c:demo:attributes:0", values["c:demo:attributes:0"].as_bytes()).unwrap();
        assert_eq!(page, names.page(0), "the edge receives them");
        assert!(values.contains_key("c:other:attributes:0"));
    }

    #[test]
    fn a_type_mismatch_is_refused_alone_whichever_value_comes_first() {
        let mut origin = Origin::new();
        let v = visitor(1);
        let facts = [
            said(v, 1, &json!({ "age": 30, "city": "Oslo" })),
            said(v, 2, &json!({ "age": "old", "city": "Rome", "vip": true })),
            said(v, 3, &json!({ "age": null, "vip": null })),
            said(v, 4, &json!({ "age": 31, "never": null })),
        ];
        let mut late = Origin::new();
        let other = said(visitor(2), 5, &json!({ "vip": false, "age": "young" }));
        for fact in std::iter::once(&other).chain(facts.iter().rev()) {
            late.send("demo", std::slice::from_ref(fact));
        }
        assert_eq!(has(&late, v), json!({ "city": "Rome" }), "here an age is a string, and was removed");
        let answer = origin.send("demo", &facts);
        assert_eq!(answer.accepted, 4);
        assert_eq!(has(&origin, v), json!({ "age": 31, "city": "Rome" }));
    }

    #[test]
    fn the_first_value_in_the_log_sets_the_type_of_a_name_for_all_visitors() {
        let mut origin = Origin::new();
        // Both facts are folded in one transaction, in which the smaller visitor comes first.
        origin
            .send("demo", &[said(visitor(9), 1, &json!({ "age": 30 })), said(visitor(1), 2, &json!({ "age": "old" }))]);
        assert_eq!((has(&origin, visitor(9)), has(&origin, visitor(1))), (json!({ "age": 30 }), json!({})));
    }

    #[test]
    fn pages_leave_some_names_for_the_admin_api() {
        let mut names = NameDictionary::default();
        let most = limits::ATTRIBUTE_NAMES - limits::ATTRIBUTE_NAMES_RESERVED;
        for n in 0..most {
            names.record(&format!("n{n}"), ValueKind::Bool).unwrap();
        }
        let one = said(visitor(1), 1, &json!({ "one": true, "n7": false }));
        let pages = |names: usize| NamePolicy::Pages.lets_pages(names);
        let (writes, refused) = resolve_names(&mut names.clone(), &one, pages);
        assert_eq!((writes.len(), refused[0].code()), (1, "unknown_name"));
        assert_eq!(resolve_names(&mut names, &one, |_| true).0.len(), 2);
        assert!(!NamePolicy::Admin.lets_pages(0) && NamePolicy::Pages.lets_pages(most - 1));
    }

    #[test]
    fn pages_of_one_visitor_do_not_use_up_the_names_of_a_tenant() {
        let mut origin = Origin::new();
        let names = |origin: &Origin| load_dictionary(&origin.conn, origin.tenant("demo").no).unwrap().len();
        let call = |of: VisitorId, n: u32| {
            let set = (0..32).map(|at| (format!("n{n}_{at}"), Json::from(true))).collect();
            said(of, n, &Json::Object(set))
        };
        let most = limits::ATTRIBUTE_NAMES_A_VISITOR;
        origin.send("demo", &(0..154).map(|n| call(visitor(1), n)).collect::<Vec<_>>());
        assert_eq!(names(&origin), most);
        origin.send("demo", &[call(visitor(1), 0), call(visitor(2), 500)]);
        assert_eq!(names(&origin), most + 32, "another brings its own");
        origin.admin("demo", &[call(visitor(1), 600)]);
        assert_eq!(names(&origin), most + 64, "the admin side has no quota");
        origin.now += DAY_MS;
        origin.send("demo", &[call(visitor(1), 700)]);
        assert_eq!(names(&origin), most + 96);
        let rows: i64 = origin.conn.query_row("SELECT count(*) FROM names_brought", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 1, "rows of previous days are deleted");
    }

    #[test]
    fn an_erasure_gives_no_names_back_to_the_quota_and_an_erased_visitor_brings_none() {
        let mut origin = Origin::new();
        let names = |origin: &Origin| load_dictionary(&origin.conn, origin.tenant("demo").no).unwrap().len();
        let call = |of: VisitorId, n: u32| {
            let set = (0..32).map(|at| (format!("n{n}_{at}"), Json::from(true))).collect();
            said(of, n, &Json::Object(set))
        };
        let visitors = u32::try_from(limits::ATTRIBUTE_NAMES_A_DAY.div_ceil(32)).unwrap();
        for n in 0..visitors + 2 {
            origin.send("demo", &[call(visitor(n), n)]);
            let gone = crate::privacy::erasure_request::ErasureTarget::Visitor(visitor(n)).fact(
                ErasureScope::Visitor,
                origin.now,
                [9; 16],
            );
            origin.admin("demo", &[gone]);
        }
        assert_eq!(names(&origin), limits::ATTRIBUTE_NAMES_A_DAY);
        origin.now += DAY_MS;
        origin.send("demo", &[call(visitor(0), 9_000)]);
        assert_eq!(names(&origin), limits::ATTRIBUTE_NAMES_A_DAY, "of an erased visitor nothing is taken");
    }

    #[test]
    fn a_full_page_of_names_is_published_unchanged_and_the_next_one_begins() {
        let mut origin = Origin::new();
        let set: serde_json::Map<String, Json> = (0..1_020).map(|n| (format!("n{n:04}"), n.into())).collect();
        let writes: Vec<(String, Json)> = set.into_iter().collect();
        let facts: Vec<Fact> = (0u32..)
            .zip(writes.chunks(limits::ATTRIBUTE_WRITES))
            .map(|(n, part)| said(visitor(n), n, &Json::Object(part.iter().cloned().collect())))
            .collect();
        origin.send("demo", &facts);
        let names = load_dictionary(&origin.conn, origin.tenant("demo").no).unwrap();
        assert_eq!((names.len(), names.pages(), names.page(1).len()), (1_020, 2, 20));
        let mut values = BTreeMap::new();
        origin.settle(&mut values);
        assert!(values.contains_key("c:demo:attributes:1"));
        assert_eq!(names_subject(1).1[14..], [0, 1]);
    }
}
