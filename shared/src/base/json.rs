//! Strict parsing of hand-written JSON. A repeated key in an object is an error; `serde_json` alone silently uses the
//! last value.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};

/// Longest path in an error text, in bytes.
const PATH_BYTES: usize = 200;

/// The reason why a document is refused.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// An object has a key twice.
    #[error("`{0}` is repeated: an object has each key once, keep one of them")]
    Repeated(String),
    /// The text is not JSON, or not of the expected form.
    #[error(transparent)]
    Form(#[from] serde_json::Error),
}

/// Parses a document.
///
/// # Errors
/// [`JsonError`] if a key is repeated, or if the text is not JSON of the form `T`.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonError> {
    check_keys(text)?;
    Ok(serde_json::from_slice(text)?)
}

/// Checks that no object of a document has a key twice. Text that is not JSON passes; the parser reports it later.
///
/// # Errors
/// [`JsonError::Repeated`] with the path of the key.
pub fn check_keys(text: &[u8]) -> Result<(), JsonError> {
    let position = DocumentPlace { path: RefCell::default(), repeated: RefCell::default() };
    let mut json = serde_json::Deserializer::from_slice(text);
    let _ = AnyValue(&position).deserialize(&mut json);
    position.repeated.into_inner().map_or(Ok(()), |path| Err(JsonError::Repeated(path)))
}

/// The reader's position in the document, and the first repeated key.
struct DocumentPlace {
    path: RefCell<Vec<PathStep>>,
    repeated: RefCell<Option<String>>,
}

/// A step from a value to one inside it.
enum PathStep {
    Key(String),
    Index(usize),
}

impl DocumentPlace {
    /// Calls `read` for the value one step further in.
    fn within<T>(&self, step: PathStep, read: impl FnOnce() -> T) -> T {
        self.path.borrow_mut().push(step);
        let read = read();
        self.path.borrow_mut().pop();
        read
    }

    /// The path of a key of the current value, such as `campaign[0].caps`.
    fn path_of(&self, key: &str) -> String {
        let mut text = String::new();
        for step in self.path.borrow().iter() {
            let _ = match step {
                PathStep::Index(at) => write!(text, "[{at}]"),
                PathStep::Key(key) if text.is_empty() => write!(text, "{key}"),
                PathStep::Key(key) => write!(text, ".{key}"),
            };
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(key);
        if text.len() > PATH_BYTES {
            let end = text.floor_char_boundary(PATH_BYTES);
            text.truncate(end);
            text.push('…');
        }
        text
    }
}

/// A deserializer for any value; it checks only the keys.
#[derive(Clone, Copy)]
struct AnyValue<'p>(&'p DocumentPlace);

impl<'de> DeserializeSeed<'de> for AnyValue<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyValue<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if !keys.insert(key.clone()) {
                *self.0.repeated.borrow_mut() = Some(self.0.path_of(&key));
                return Err(A::Error::custom("repeated key"));
            }
            self.0.within(PathStep::Key(key), || map.next_value_seed(self))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        for at in 0.. {
            if self.0.within(PathStep::Index(at), || all.next_element_seed(self))?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_is_named_with_its_path_wherever_it_is() {
        let cases = [
            (r#"{"attributes.s":{"$gt":3},"attributes.s":{"$lt":7}}"#, "attributes.s"),
            (r#"{"campaign":[{"id":"a"},{"caps":[{}],"id":"b","caps":[]}]}"#, "campaign[1].caps"),
            (r#"{"ad":[],"x":[[{"a":{"b":1,"\u0062":2}}]],"ad":[]}"#, "x[0][0].a.b"),
            (r#"[1,-2,0.5,null,true,"x",{"k":1,"k":1}]"#, "[6].k"),
        ];
        for (text, path) in cases {
            let error = read::<serde_json::Value>(text.as_bytes()).unwrap_err();
            let expected = format!("`{path}` is repeated: an object has each key once, keep one of them");
            assert_eq!(error.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn each_key_once_is_no_repetition_and_what_is_no_json_says_so() {
        let text = br#"{"a":{"a":[{"a":1},{"a":1}]},"b":{"a":1}}"#;
        assert_eq!(
            read::<serde_json::Value>(text).unwrap(),
            serde_json::from_slice::<serde_json::Value>(text).unwrap()
        );
        for text in [&br#"{"a":1"#[..], b"", b"{]", &[b'['; 100_000]] {
            assert!(check_keys(text).is_ok());
            assert!(matches!(read::<serde_json::Value>(text), Err(JsonError::Form(_))));
        }
        let long = format!(r#"{{"{0}":1,"{0}":1}}"#, "ä".repeat(1_000));
        assert!(check_keys(long.as_bytes()).unwrap_err().to_string().len() < 300);
    }
}
