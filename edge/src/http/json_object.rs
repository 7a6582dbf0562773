//! Objects of a JSON body. By default, serde also reads a structure from an array of its field values, and a map
//! retains only the last value of a repeated name. Both would hide an error of the caller.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// A structure that is read only from an object.
#[derive(Debug, Default)]
pub(crate) struct JsonObject<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

/// The fields of an object in their order, including repeated names.
#[derive(Debug)]
pub(crate) struct JsonFields<T>(pub(crate) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonFields<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(FieldsVisitor(PhantomData)).map(Self)
    }
}

struct FieldsVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for FieldsVisitor<T> {
    type Value = Vec<(String, T)>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(fields)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[derive(Debug, Default, serde::Deserialize)]
    #[serde(default)]
    struct Pair<'a> {
        #[serde(borrow)]
        one: std::borrow::Cow<'a, str>,
        two: u8,
    }

    #[test]
    fn a_structure_is_read_from_an_object_and_from_nothing_else() {
        let JsonObject(pair) = serde_json::from_str::<JsonObject<Pair<'_>>>(r#"{"two":2,"one":"x"}"#).unwrap();
        assert_eq!((pair.one.as_ref(), pair.two), ("x", 2));
        for other in ["[]", r#"["x",2]"#, "null", "7", r#""x""#, r#"{"two":2,"two":3}"#] {
            assert!(serde_json::from_str::<JsonObject<Pair<'_>>>(other).is_err(), "{other}");
        }
    }

    #[test]
    fn each_repetition_of_a_name_is_a_field() {
        let JsonFields(fields) = serde_json::from_str::<JsonFields<u8>>(r#"{"b":1,"a":2,"\u0062":3}"#).unwrap();
        assert_eq!(fields, [("b".to_owned(), 1), ("a".to_owned(), 2), ("b".to_owned(), 3)]);
        assert!(serde_json::from_str::<JsonFields<u8>>("[1]").is_err());
    }
}
