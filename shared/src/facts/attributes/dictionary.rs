//! A tenant's names of attributes (S4.9) and the kind of each (S4.10). A token stays its name's until the admin side takes
//! the name back ([`ForgottenName`]); a new name gets a free token first, then the next one.

use std::collections::{BTreeMap, BTreeSet};

use super::{AttributeValue, ForgottenName, NameToken, ValueKind, name_is_good, name_is_reserved};
use crate::base::limits;
use crate::base::packed::{self, PackedReader};

/// Why a name is not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DictionaryError {
    /// Not of the form.
    #[error(
        "an attribute's name is 1 to {} of A-Z, a-z, 0-9, _, - and ., a letter or _ first",
        limits::ATTRIBUTE_NAME_BYTES
    )]
    BadName,
    /// New, and not for the one who uses it to bring.
    #[error("there is no attribute of that name, and a page may not bring new ones here: add it on the admin side")]
    Unknown,
    /// Full.
    #[error("there are {} names of attributes already: no new one is taken", limits::ATTRIBUTE_NAMES)]
    Full,
}

/// Why an attribute is not taken; the others of its fact still are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// The value is not of the attribute's kind.
    #[error("attribute `{name}` is {}, {} was given", expected.one(), found.one())]
    Type {
        /// The attribute's name.
        name: String,
        /// Its kind, as recorded at its first use.
        expected: ValueKind,
        /// The value's.
        found: ValueKind,
    },
    /// A whole number that the attribute's kind cannot keep exactly.
    #[error("attribute `{name}` is a float: a whole number above 2^53 is not kept exactly, write it as a string")]
    Inexact {
        /// The attribute's name.
        name: String,
    },
    /// The name is new and cannot be recorded.
    #[error(transparent)]
    Name(#[from] DictionaryError),
}

impl AttributeError {
    /// A stable name for the answer and the metrics.
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

/// Names and kinds in the order of their first use, at most [`limits::ATTRIBUTE_NAMES`]. A token is the place in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NameDictionary {
    entries: Vec<(String, ValueKind)>,
    tokens: BTreeMap<String, NameToken>,
    /// Tokens without a name, in order: new names get them.
    free: BTreeSet<NameToken>,
}

impl NameDictionary {
    /// The dictionary of these entries in order; `None` when a name is bad or there twice, or there are too many.
    #[must_use]
    pub fn from_entries(entries: impl IntoIterator<Item = (String, ValueKind)>) -> Option<Self> {
        let mut all = Self::default();
        for (name, kind) in entries {
            let token = all.last().ok().filter(|_| name_is_good(&name))?;
            match ForgottenName::parse(&name) {
                Some(ForgottenName::Free) => drop(all.free.insert(token)),
                // A token in such a state has no name that anybody could use.
                Some(ForgottenName::Leaving | ForgottenName::Resting(_)) => {}
                None if all.tokens.insert(name.clone(), token).is_some() => return None,
                None => {}
            }
            all.entries.push((name, kind));
        }
        Some(all)
    }

    /// How many tokens there are, free ones among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many tokens no new name can get: of the [`limits::ATTRIBUTE_NAMES`] all others are room.
    #[must_use]
    pub fn used(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The name and kind of a token.
    #[must_use]
    pub fn get(&self, token: NameToken) -> Option<(&str, ValueKind)> {
        self.entries.get(usize::from(token.0)).map(|(name, kind)| (name.as_str(), *kind))
    }

    /// The token and kind of a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(NameToken, ValueKind)> {
        let token = *self.tokens.get(name)?;
        self.get(token).map(|(_, kind)| (token, kind))
    }

    /// The token of a name, a new one if it is not there yet. The kind of a name that is there stays what it is.
    ///
    /// # Errors
    /// For a new name that is bad, or when there is no room for it.
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

    /// The token that a new name would get: the first that is free, else the next one.
    ///
    /// # Errors
    /// For a name that is bad or that only the origin gives, or when there is no room for it.
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

    /// An attribute as it is written: its token, and its value as the recorded kind takes it. The first use of a name
    /// records it with the kind of its value, a number's always as a float.
    ///
    /// # Errors
    /// When the value is of another kind, or as in [`NameDictionary::record`]; then nothing is recorded.
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

    /// Whether [`NameDictionary::accept`] would take it, without recording.
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

    /// How many pages there are.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.len().div_ceil(limits::ATTRIBUTE_PAGE)
    }

    /// The `n`th page from 0 on, of up to [`limits::ATTRIBUTE_PAGE`] entries; empty beyond the last.
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

/// A page packed: how many entries; of each the name behind its length and the code of its kind.
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

/// The entries of a packed page, each name good and there once; `None` when the bytes are not what [`encode_page`]
/// gives of a page.
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
