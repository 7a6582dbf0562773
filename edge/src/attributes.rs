//! Attributes that a call brings, and the tenant's names and kinds of attributes, against which they are checked. The
//! origin checks again: names that are not there, or a minute old, let pass what it refuses.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use causeway_shared::attributes::{AttributeError, Dictionary, DictionaryError, Value, name_is_good};
use causeway_shared::config::NamePolicy;
use causeway_shared::fact::FactError;
use causeway_shared::ids::{Millis, TenantId};
use causeway_shared::{kv, limits, wire};
use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;

/// How long an isolate goes by the names that it read, in milliseconds.
const KEEP_MS: Millis = 60_000;
/// Tenants whose names an isolate keeps.
const KEPT: usize = 8;

/// An attribute that was not taken, and why.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) name: String,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// Attributes as a call brings them.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// Names of their form, with values within their bounds; `None` where one is removed.
    pub(crate) writes: Vec<(String, Option<Value>)>,
    /// The others.
    pub(crate) refused: Vec<Refused>,
}

impl Given {
    /// Reads what is set, an object, and what is removed, an array; what is both is set. Each value is read alone: one that
    /// cannot be read sinks no other.
    pub(crate) fn read(set: Option<&RawValue>, remove: Option<&RawValue>) -> Self {
        let mut given = Self::default();
        let set: BTreeMap<Cow<'_, str>, &RawValue> = given.part(set);
        let remove: Vec<String> = given.part(remove);
        if set.len() + remove.len() > limits::ATTRIBUTE_WRITES {
            given.refuse("attributes", FactError::Attributes.code(), &FactError::Attributes);
            return given;
        }
        for (name, raw) in &set {
            let json = serde_json::from_str(raw.get());
            match json.map(|json: Json| Value::from_json(&json)) {
                _ if !name_is_good(name) => given.refuse_name(name),
                Ok(Ok(value)) => given.writes.push((name.to_string(), Some(value))),
                Ok(Err(error)) => given.refuse(name, error.code(), &error),
                Err(error) => given.refuse(name, "malformed", &error),
            }
        }
        for name in remove.iter().filter(|name| !set.contains_key(name.as_str())) {
            if name_is_good(name) {
                given.writes.push((name.clone(), None));
            } else {
                given.refuse_name(name);
            }
        }
        given
    }

    /// What is given as a whole; nothing where there is nothing, or null.
    fn part<'a, T: Default + Deserialize<'a>>(&mut self, raw: Option<&'a RawValue>) -> T {
        let read = raw.map(|raw| serde_json::from_str::<Option<T>>(raw.get())).transpose();
        read.unwrap_or_else(|error| {
            self.refuse("attributes", "malformed", &error);
            None
        })
        .flatten()
        .unwrap_or_default()
    }

    fn refuse_name(&mut self, name: &str) {
        self.refuse(name, "bad_name", &DictionaryError::BadName);
    }

    fn refuse(&mut self, name: &str, code: &'static str, error: &dyn std::error::Error) {
        let message = format!("attribute `{name}`: {error}");
        self.refused.push(Refused { name: name.to_owned(), code, message });
    }

    /// Whether there is a value whose kind the names decide on.
    pub(crate) fn has_values(&self) -> bool {
        self.writes.iter().any(|(_, value)| value.is_some())
    }

    /// Refuses the values that are not of their name's kind, and new names that pages may not bring, or for which there
    /// is no room; a call may bring `new` more. Where no names could be read the origin alone decides.
    pub(crate) fn settle(&mut self, names: &Dictionary, policy: NamePolicy, new: &mut usize) {
        let refused = &mut self.refused;
        let check = |name: &str, value: &Value, new: &mut usize| -> Result<(), AttributeError> {
            names.check(name, value)?;
            if !names.is_empty() && names.find(name).is_none() {
                if !policy.lets_pages(names.len()) {
                    return Err(DictionaryError::Unknown.into());
                }
                *new = new.checked_sub(1).ok_or(DictionaryError::Full)?;
            }
            Ok(())
        };
        self.writes.retain(|(name, value)| match value.as_ref().map(|value| check(name, value, new)) {
            None | Some(Ok(())) => true,
            Some(Err(error)) => {
                refused.push(Refused { name: name.clone(), code: error.code(), message: error.to_string() });
                false
            }
        });
    }
}

/// Where the names are in the KV.
pub(crate) fn keys(tenant: &TenantId) -> impl Iterator<Item = String> + '_ {
    (0..limits::ATTRIBUTE_PAGES).map(|page| kv::attributes_key(tenant, page))
}

/// The names of the pages read, one a line: up to the first that is missing or not full. Whether one was bad: with a part of
/// them others that are known would be refused, so that there are none.
pub(crate) fn names<'a>(tenant: &TenantId, lines: impl Iterator<Item = &'a [u8]>) -> (Dictionary, bool) {
    let (mut entries, mut bad) = (Vec::new(), false);
    for (key, value) in keys(tenant).zip(lines) {
        if value.is_empty() {
            break;
        }
        let Ok(page) = wire::kv::decode_names(&key, value) else {
            bad = true;
            break;
        };
        let full = page.len() == limits::ATTRIBUTE_PAGE;
        entries.extend(page);
        if !full {
            break;
        }
    }
    match Dictionary::from_entries(entries) {
        Some(names) if !bad => (names, false),
        _ => (Dictionary::default(), true),
    }
}

/// The names that an isolate read of late, and when.
#[derive(Debug, Default)]
pub(crate) struct Kept(BTreeMap<TenantId, (Millis, Rc<Dictionary>)>);

impl Kept {
    /// The names as they were within the last minute.
    pub(crate) fn fresh(&self, tenant: &TenantId, now: Millis) -> Option<Rc<Dictionary>> {
        self.0.get(tenant).filter(|(at, _)| is_fresh(*at, now)).map(|(_, names)| Rc::clone(names))
    }

    /// Keeps names that were read. None are not kept: the first ones are to be seen at once.
    pub(crate) fn keep(&mut self, tenant: &TenantId, now: Millis, names: &Rc<Dictionary>) {
        if names.is_empty() {
            return;
        }
        self.0.insert(tenant.clone(), (now, Rc::clone(names)));
        self.0.retain(|_, (at, _)| is_fresh(*at, now));
        let oldest = self.0.iter().min_by_key(|(_, (at, _))| *at).map(|(tenant, _)| tenant.clone());
        if let Some(oldest) = oldest.filter(|_| self.0.len() > KEPT) {
            self.0.remove(&oldest);
        }
    }
}

fn is_fresh(at: Millis, now: Millis) -> bool {
    now.checked_sub(at).is_some_and(|age| age < KEEP_MS)
}
