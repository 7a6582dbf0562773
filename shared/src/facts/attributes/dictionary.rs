//! A tenant's attribute names and the kind of each. A token belongs to its name until an administrator takes the name
//! back ([`ForgottenName`]). A new name gets the first free token, otherwise the next one.

use std::collections::{BTreeMap, BTreeSet};

use super::{AttributeValue, ForgottenName, NameToken, ValueKind, name_is_good, name_is_reserved};
use crate::base::limits;
use crate::base::packed::{self, PackedReader};

/// Reason why a name is not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DictionaryError {
    /// The name does not have the required form.
    #[error(
        "an attribute's name has 1 to {} of A-Z, a-z, 0-9, _, - and ., and begins with a letter or _",
        limits::ATTRIBUTE_NAME_BYTES
    )]
    BadName,
    /// The name is new, and this caller may not add names.
    #[error("unknown attribute: pages may not add names here, add it with the admin API first")]
    Unknown,
    /// The dictionary is at its bound.
    #[error("the tenant already has {} attribute names: no new name is accepted", limits::ATTRIBUTE_NAMES)]
    Full,
}

/// Reason why an attribute is refused; the other attributes of its fact are still accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// The value's kind differs from the attribute's.
    #[error("attribute `{name}` is {}, {} was given", expected.one(), found.one())]
    Type {
        /// The attribute's name.
        name: String,
        /// The attribute's kind, as recorded at its first use.
        expected: ValueKind,
        /// The kind of the value.
        found: ValueKind,
    },
    /// The value is a whole number that the attribute's kind cannot store exactly.
    #[error("attribute `{name}` is a float: a whole number above 2^53 is not stored exactly, send it as a string")]
    Inexact {
        /// The attribute's name.
        name: String,
    },
    /// The name is new and cannot be recorded.
    #[error(transparent)]
    Name(#[from] DictionaryError),
}

impl AttributeError {
    /// Stable machine-readable code for answers and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Type { .. } => "type_mismatch",
            Self::Inexact { .. } => "out_of_bounds",
            Self::Name(DictionaryError::BadName) => "bad_name",
            Self::Name(DictionaryError::Unknown) => "unknown_name",
            Self::Name(DictionaryError::Full) => "too_many_names",
        }
    }
}

/// Names and kinds in order of their first use, at most [`limits::ATTRIBUTE_NAMES`]. A token is an index into this
/// list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NameDictionary {
    entries: Vec<(String, ValueKind)>,
    tokens: BTreeMap<String, NameToken>,
    /// Tokens without a name, in order; new names get them first.
    free: BTreeSet<NameToken>,
}

impl NameDictionary {
    /// Dictionary of these entries, in order; `None` if a name is invalid or repeated, or there are too many.
    #[must_use]
    pub fn from_entries(entries: impl IntoIterator<Item = (String, ValueKind)>) -> Option<Self> {
        let mut all = Self::default();
        for (name, kind) in entries {
            let token = all.last().ok().filter(|_| name_is_good(&name))?;
            match ForgottenName::parse(&name) {
                Some(ForgottenName::Free) => drop(all.free.insert(token)),
                // A token in this state has no name that a caller could use.
                Some(ForgottenName::Leaving | ForgottenName::Resting(_)) => {}
                None if all.tokens.insert(name.clone(), token).is_some() => return None,
                None => {}
            }
            all.entries.push((name, kind));
        }
        Some(all)
    }

    /// Number of tokens, free ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of tokens that are not free. The remaining [`limits::ATTRIBUTE_NAMES`] are available for new names.
    #[must_use]
    pub fn used(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there are no tokens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Name and kind of a token.
    #[must_use]
    pub fn get(&self, token: NameToken) -> Option<(&str, ValueKind)> {
        self.entries.get(usize::from(token.0)).map(|(name, kind)| (name.as_str(), *kind))
    }

    /// Token and kind of a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(NameToken, ValueKind)> {
        let token = *self.tokens.get(name)?;
        self.get(token).map(|(_, kind)| (token, kind))
    }

    /// The token of a name; a new name gets a token. An existing name keeps its kind.
    ///
    /// # Errors
    /// [`DictionaryError::BadName`] or [`DictionaryError::Full`], for a new name.
    pub fn record(&mut self, name: &str, kind: ValueKind) -> Result<NameToken, DictionaryError> {
        if let Some((token, _)) = self.find(name) {
            return Ok(token);
        }
        let token = self.next(name)?;
        let entry = (name.to_owned(), kind);
        match self.entries.get_mut(usize::from(token.0)).filter(|_| self.free.remove(&token)) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        self.tokens.insert(name.to_owned(), token);
        Ok(token)
    }

    /// The token that a new name would get: the first free one, otherwise the next one.
    ///
    /// # Errors
    /// [`DictionaryError::BadName`] if the name is invalid or reserved for the origin; [`DictionaryError::Full`].
    pub fn next(&self, name: &str) -> Result<NameToken, DictionaryError> {
        if !name_is_good(name) || name_is_reserved(name) {
            return Err(DictionaryError::BadName);
        }
        self.free.first().copied().map_or_else(|| self.last(), Ok)
    }

    /// The token after all others.
    fn last(&self) -> Result<NameToken, DictionaryError> {
        let room = u16::try_from(self.len()).ok().filter(|_| self.len() < limits::ATTRIBUTE_NAMES);
        room.map(NameToken).ok_or(DictionaryError::Full)
    }

    /// Prepares one write: the attribute's token, and the value converted to the attribute's kind. The first use of a
    /// name records the kind of its value; any number is recorded as a float.
    ///
    /// # Errors
    /// If the value's kind does not fit, or as in [`NameDictionary::record`]. Nothing is recorded in that case.
    pub fn accept(&mut self, name: &str, value: AttributeValue) -> Result<(NameToken, AttributeValue), AttributeError> {
        match self.find(name) {
            Some(_) if name_is_reserved(name) => Err(DictionaryError::BadName.into()),
            Some((token, kind)) => Ok((token, fitted(name, value, kind)?)),
            None => {
                self.next(name)?;
                let kind = value.first_kind();
                let value = fitted(name, value, kind)?;
                Ok((self.record(name, kind)?, value))
            }
        }
    }

    /// Checks whether [`NameDictionary::accept`] would succeed, without recording a name.
    ///
    /// # Errors
    /// Those of [`NameDictionary::accept`].
    pub fn check(&self, name: &str, value: &AttributeValue) -> Result<(), AttributeError> {
        match self.find(name) {
            Some(_) if name_is_reserved(name) => Err(DictionaryError::BadName.into()),
            Some((_, kind)) => fitted(name, value.clone(), kind).map(drop),
            None => {
                self.next(name)?;
                fitted(name, value.clone(), value.first_kind()).map(drop)
            }
        }
    }

    /// Number of pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.len().div_ceil(limits::ATTRIBUTE_PAGE)
    }

    /// Page `n`, counted from 0, of at most [`limits::ATTRIBUTE_PAGE`] entries; empty after the last page.
    #[must_use]
    pub fn page(&self, n: usize) -> &[(String, ValueKind)] {
        self.entries.chunks(limits::ATTRIBUTE_PAGE).nth(n).unwrap_or_default()
    }
}

fn fitted(name: &str, value: AttributeValue, kind: ValueKind) -> Result<AttributeValue, AttributeError> {
    value.fit(kind).map_err(|value| {
        let name = name.to_owned();
        match (value, kind) {
            (AttributeValue::Integer(_), ValueKind::Float) => AttributeError::Inexact { name },
            (value, expected) => AttributeError::Type { name, expected, found: value.kind() },
        }
    })
}

/// Packs a page: the number of entries, then for each entry its name with a length prefix, and the code of its kind.
#[must_use]
pub fn encode_page(entries: &[(String, ValueKind)]) -> Vec<u8> {
    let mut to = Vec::new();
    packed::put(&mut to, entries.len() as u64);
    for (name, kind) in entries {
        packed::put_row(&mut to, name.as_bytes());
        to.push(kind.code());
    }
    to
}

/// Reads a packed page. `None` unless the bytes have the form of [`encode_page`], with valid names and without repeats.
#[must_use]
pub fn decode_page(bytes: &[u8]) -> Option<Vec<(String, ValueKind)>> {
    let mut from = PackedReader(bytes);
    let mut names = BTreeSet::new();
    let entries = (0..from.count(limits::ATTRIBUTE_PAGE)?).map(|_| {
        let name = std::str::from_utf8(from.row()?).ok().filter(|name| name_is_good(name) && names.insert(*name))?;
        let [code] = from.take(1)? else { return None };
        Some((name.to_owned(), ValueKind::from_code(*code)?))
    });
    let entries: Vec<_> = entries.collect::<Option<_>>()?;
    from.is_empty().then_some(entries)
}
