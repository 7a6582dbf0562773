//! Attribute writes of a call, checked against the tenant's attribute names and their types. The origin checks them
//! again, because the names at the edge may be missing or a minute old.

use std::borrow::Cow;
use std::collections::BTreeMap;

use causeway_shared::base::limits;
use causeway_shared::facts::attributes::{
    AttributeError, AttributeValue, DictionaryError, NameDictionary, name_is_good,
};
use causeway_shared::facts::fact::FactError;
use causeway_shared::settings::config::NamePolicy;
use serde::Deserialize;
use serde_json::value::RawValue;

/// An attribute write that was refused, and the reason.
#[derive(Debug)]
pub(crate) struct RefusedAttribute {
    pub(crate) name: String,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// The attribute writes of a call.
#[derive(Debug, Default)]
pub(crate) struct AttributeWrites {
    /// Valid names with values within their bounds; `None` removes the attribute.
    pub(crate) writes: Vec<(String, Option<AttributeValue>)>,
    /// Writes that were refused.
    pub(crate) refused: Vec<RefusedAttribute>,
}

impl AttributeWrites {
    /// Reads the object of values to set and the array of names to remove. A name in both is set. Each value is read
    /// separately, so that an invalid one refuses no other.
    pub(crate) fn read(set: Option<&RawValue>, remove: Option<&RawValue>) -> Self {
        let mut parsed = Self::default();
        let set: BTreeMap<Cow<'_, str>, &RawValue> = parsed.read_part(set);
        let remove: Vec<String> = parsed.read_part(remove);
        if set.len() + remove.len() > limits::ATTRIBUTE_WRITES {
            parsed.refuse("attributes", FactError::Attributes.code(), &FactError::Attributes);
            return parsed;
        }
        for (name, raw) in &set {
            match AttributeValue::from_text(raw.get()) {
                _ if !name_is_good(name) => parsed.refuse_name(name),
                Ok(Ok(value)) => parsed.writes.push((name.to_string(), Some(value))),
                Ok(Err(error)) => parsed.refuse(name, error.code(), &error),
                Err(error) => parsed.refuse(name, "malformed", &error),
            }
        }
        for name in remove.iter().filter(|name| !set.contains_key(name.as_str())) {
            if name_is_good(name) {
                parsed.writes.push((name.clone(), None));
            } else {
                parsed.refuse_name(name);
            }
        }
        parsed
    }

    /// Reads one part of the call; the default if it is absent or null.
    fn read_part<'a, T: Default + Deserialize<'a>>(&mut self, raw: Option<&'a RawValue>) -> T {
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
        self.refused.push(RefusedAttribute { name: name.to_owned(), code, message });
    }

    /// Whether a value is set, so that the attribute's type must be checked.
    pub(crate) fn has_values(&self) -> bool {
        self.writes.iter().any(|(_, value)| value.is_some())
    }

    /// Refuses values of another type than their name's, and new names that pages may not add or that exceed
    /// `new_names`, the number of names that the call may still add. Without names nothing is refused here; the origin
    /// decides.
    pub(crate) fn check_names(&mut self, names: &NameDictionary, policy: NamePolicy, new_names: &mut usize) {
        let refused = &mut self.refused;
        let check = |name: &str, value: &AttributeValue, new: &mut usize| -> Result<(), AttributeError> {
            names.check(name, value)?;
            if !names.is_empty() && names.find(name).is_none() {
                if !policy.lets_pages(names.used()) {
                    return Err(DictionaryError::Unknown.into());
                }
                *new = new.checked_sub(1).ok_or(DictionaryError::Full)?;
            }
            Ok(())
        };
        self.writes.retain(|(name, value)| match value.as_ref().map(|value| check(name, value, new_names)) {
            None | Some(Ok(())) => true,
            Some(Err(error)) => {
                refused.push(RefusedAttribute { name: name.clone(), code: error.code(), message: error.to_string() });
                false
            }
        });
    }
}
