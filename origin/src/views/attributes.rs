//! Attributes of a visitor, as the admin API reads and writes them. A write is a fact like any other. An invalid
//! attribute does not affect the others of the call.

use std::collections::BTreeMap;

use causeway_shared::base::ids::{FactId, Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::attributes::{
    AttributeMap, AttributeValue, DictionaryError, NameDictionary, ValueKind, name_is_good, name_is_reserved,
};
use causeway_shared::facts::fact::{Fact, FactKind};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

use crate::store::{StoreError, names};
use crate::views::read::{self, StoreView, VisitorView};
use crate::views::segments;

pub use segments::SegmentOwner;

/// Changes of the attributes of a visitor.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeWrite {
    /// Attributes that the visitor has from now on, by name.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub set: BTreeMap<String, Json>,
    /// Names of attributes that the visitor no longer has.
    #[serde(default)]
    pub remove: Vec<String>,
}

/// A refused attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RefusedAttribute {
    /// Name of the attribute.
    pub name: String,
    /// Stable name of the reason.
    pub code: &'static str,
    /// The reason in English.
    pub message: String,
}

/// Converts a write to facts with its valid attributes, and lists the refused ones. `id` is 16 random bytes.
#[must_use]
pub fn attribute_facts(
    names: &NameDictionary,
    visitor: VisitorId,
    write: &AttributeWrite,
    now: Millis,
    id: [u8; 16],
) -> (Vec<Fact>, Vec<RefusedAttribute>) {
    let (mut good, mut refused) = (Vec::new(), Vec::new());
    for (name, json) in &write.set {
        match checked_value(names, name, json) {
            Ok(value) => good.push((name.clone(), Some(value))),
            Err((code, message)) => refused.push(RefusedAttribute { name: name.clone(), code, message }),
        }
    }
    for name in &write.remove {
        if name_is_good(name) {
            good.push((name.clone(), None));
        } else {
            let message = DictionaryError::BadName.to_string();
            refused.push(RefusedAttribute { name: name.clone(), code: "bad_name", message });
        }
    }
    let fact = |(n, writes): (u128, &[(String, Option<AttributeValue>)])| {
        let id = FactId::from_bytes((u128::from_be_bytes(id) ^ n << 64).to_be_bytes());
        let what = FactKind::Attributes { writes: writes.to_vec() };
        Fact { position: 0, id, visitor, received: now, at: now, what }
    };
    ((0u128..).zip(good.chunks(limits::ATTRIBUTE_WRITES)).map(fact).collect(), refused)
}

fn checked_value(names: &NameDictionary, name: &str, json: &Json) -> Result<AttributeValue, (&'static str, String)> {
    let value = AttributeValue::from_json(json).map_err(|e| (e.code(), e.to_string()))?;
    names.check(name, &value).map_err(|e| (e.code(), e.to_string()))?;
    Ok(value)
}

/// The earliest time, in milliseconds since 1970, at which a write replaces the stored values. It may lie in the future
/// if an edge's clock was ahead. The person's other visitors count too, because the newest write of the person is
/// effective.
///
/// # Errors
/// [`StoreError`].
pub fn stamp_after(view: &StoreView<'_>, visitor: &VisitorView, write: &AttributeWrite) -> Result<Millis, StoreError> {
    let mut dictionary = names::load_dictionary(view.conn, visitor.tenant)?;
    // A visitor with a write in the future was seen recently, so that it is among the most recently active visitors.
    let map = of_person(view, visitor, limits::SNAPSHOT_VISITORS, &mut dictionary)?;
    let tokens = write.set.keys().chain(&write.remove).filter_map(|name| dictionary.find(name));
    Ok(tokens.filter_map(|(token, _)| map.written(token)).max().map_or(0, |at| at + 1))
}

/// The attributes of a visitor and of its person, by name.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct AttributeLists {
    /// Id of the visitor.
    #[schema(format = "uuid")]
    pub visitor: String,
    /// Attributes of the visitor.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub own: BTreeMap<String, Json>,
    /// Attributes of the person: the newest value of each name.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub view: BTreeMap<String, Json>,
}

/// A page of the attribute names of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AttributeNamePage {
    /// The names, in the order of their first use.
    pub names: Vec<AttributeNameRow>,
    /// Number of pages.
    pub pages: usize,
}

/// A name of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AttributeNameRow {
    /// Token of the name.
    pub token: usize,
    /// The name.
    pub name: String,
    /// Type of the values: `bool`, `integer`, `float`, `string`, `date` or `strings`.
    pub r#type: &'static str,
}

/// The visitor's own attributes and those of its person.
///
/// # Errors
/// [`StoreError`].
pub fn describe_attributes(view: &StoreView<'_>, visitor: &VisitorView) -> Result<AttributeLists, StoreError> {
    let mut dictionary = names::load_dictionary(view.conn, visitor.tenant)?;
    let own = read::attribute_map(view, visitor, &mut dictionary)?;
    let person = of_person(view, visitor, limits::PERSON_VISITORS, &mut dictionary)?;
    Ok(AttributeLists {
        visitor: visitor.visitor.to_string(),
        own: by_name(&own, &dictionary),
        view: by_name(&person, &dictionary),
    })
}

fn of_person(
    view: &StoreView<'_>,
    visitor: &VisitorView,
    most: usize,
    dictionary: &mut NameDictionary,
) -> Result<AttributeMap, StoreError> {
    let mut person = AttributeMap::default();
    for member in read::load_members(view, visitor, most)? {
        person = person.join(read::attribute_map(view, &member, dictionary)?);
    }
    Ok(person)
}

/// Attributes by name, as JSON values. Forgotten names and names reserved for the origin are left out.
#[must_use]
pub fn by_name(map: &AttributeMap, dictionary: &NameDictionary) -> BTreeMap<String, Json> {
    let named = map.iter().filter_map(|(token, value)| Some((dictionary.get(token)?.0, value)));
    let named = named.filter(|(name, _)| !name_is_reserved(name));
    named.map(|(name, value)| (name.to_owned(), value.to_json())).collect()
}

/// One page of the tenant's attribute names with their types, as JSON.
#[must_use]
pub fn names_page(dictionary: &NameDictionary, page: usize) -> AttributeNamePage {
    let entry = |(index, (name, kind)): (usize, &(String, ValueKind))| AttributeNameRow {
        token: page * limits::ATTRIBUTE_PAGE + index,
        name: name.clone(),
        r#type: kind.name(),
    };
    let names = dictionary.page(page).iter().enumerate().map(entry).collect();
    AttributeNamePage { names, pages: dictionary.pages() }
}
