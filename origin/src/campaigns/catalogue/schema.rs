//! JSON Schema of a catalogue's document, for editors. The schema is written by hand; a test compares it with the
//! fields of the document's types.

/// The schema as JSON.
pub const SCHEMA: &str = include_str!("schema.json");

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::BTreeSet;

    use causeway_shared::ads::catalogue::Catalogue;
    use causeway_shared::settings::vocabulary::VocabularyWord;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    /// The fields that a type lists in its error for an unknown field.
    fn fields<T: DeserializeOwned>(with: Value) -> BTreeSet<String> {
        let said = serde_json::from_value::<T>(with).err().unwrap().to_string();
        let listed = said.split_once("expected").unwrap().1;
        listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    fn described(schema: &Value, at: &str) -> BTreeSet<String> {
        schema.pointer(at).unwrap()["properties"].as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn the_schema_names_every_field_there_is() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let unknown = json!({ "?": 0 });
        for sort in super::super::document::SORTS {
            let expected = fields::<Catalogue>(json!({ sort: [unknown] }));
            assert_eq!(described(&schema, &format!("/$defs/{sort}")), expected, "{sort}");
        }
        let cap = fields::<Catalogue>(json!({ "advertiser": [{ "caps": [unknown] }] }));
        assert_eq!(described(&schema, "/$defs/cap"), cap);
        let window = fields::<Catalogue>(json!({ "advertiser": [{ "caps": [{ "window": unknown }] }] }));
        assert_eq!(described(&schema, "/$defs/window"), window);
        assert_eq!(described(&schema, "/$defs/word"), fields::<VocabularyWord>(unknown.clone()));
        let mut all = fields::<Catalogue>(unknown);
        all.extend(["action_type", "view_type"].map(str::to_owned));
        assert_eq!(described(&schema, ""), all);
    }
}
