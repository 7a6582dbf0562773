//! JSON Schema of a catalogue's document, for editors, generated from the types of the document.

use causeway_shared::ads::catalogue::Catalogue;
use causeway_shared::settings::vocabulary::Vocabulary;
use schemars::generate::SchemaSettings;
use schemars::transform::{AddNullable, RecursiveTransform, ReplaceUnevaluatedProperties};
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// The catalogue of a tenant, as `catalogue.toml` or `catalogue.json`. `causeway catalogue check` checks it as a whole.
#[derive(JsonSchema)]
#[schemars(title = "Causeway catalogue", deny_unknown_fields)]
#[expect(dead_code, reason = "the fields describe the form of a document, which is read in parts")]
struct CatalogueDocument {
    #[schemars(flatten)]
    catalogue: Catalogue,
    /// Words in addition to `impression` and `click`. They must equal those of the tenant's configuration, from which
    /// the edges read them.
    #[schemars(flatten)]
    words: Vocabulary,
}

/// The schema. A key without a value is left out of a document, so no value may be `null`.
#[must_use]
pub fn document_schema() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with_transform(AddNullable::default())
        .with_transform(RecursiveTransform(forbid_null))
        .with_transform(ReplaceUnevaluatedProperties::default());
    settings.into_generator().into_root_schema_for::<CatalogueDocument>().to_value()
}

fn forbid_null(schema: &mut Schema) {
    schema.remove("nullable");
    if let Some(Value::Array(forms)) = schema.get_mut("anyOf") {
        forms.retain(|form| form.get("const") != Some(&Value::Null));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_schema_states_the_form_and_the_bounds_of_a_document() {
        let schema = document_schema();
        let at = |pointer: &str| schema.pointer(pointer).cloned().unwrap_or_default();
        for (pointer, expected) in [
            ("/additionalProperties", json!(false)),
            ("/properties/experiment/maxItems", json!(32)),
            ("/properties/action_type/items/$ref", json!("#/$defs/VocabularyWord")),
            ("/$defs/VocabularyWord/properties/name/pattern", json!("^[a-z0-9_]{1,32}$")),
            ("/$defs/Advertiser/required", json!(["id"])),
            ("/$defs/Advertiser/properties/caps/maxItems", json!(8)),
            ("/$defs/RowId/pattern", json!("^[a-z0-9_-]{1,64}$")),
            ("/$defs/RowCode/minimum", json!(1)),
            ("/$defs/Campaign/required", json!(["id", "advertiser"])),
            ("/$defs/Campaign/properties/budget_micros/type", json!("integer")),
            ("/$defs/Campaign/properties/budget_micros/maximum", json!(1_000_000_000_000_000_u64)),
            ("/$defs/Campaign/properties/categories/items/maxLength", json!(64)),
            ("/$defs/Campaign/properties/targeting/type", json!("object")),
            ("/$defs/Ad/required", json!(["id", "ad_group", "creative", "landing"])),
            ("/$defs/Ad/properties/landing/format", json!("uri")),
            ("/$defs/Ad/properties/sizes/items/items/minimum", json!(1)),
            ("/$defs/Ad/properties/weight/default", json!(1)),
            ("/$defs/CapRule/properties/limit/maximum", json!(10_000)),
            ("/$defs/TimeWindow/properties/interval/minimum", json!(1)),
            ("/$defs/RecipientLimit/required", json!(["limit"])),
            ("/$defs/Experiment/required", json!(["id", "arm", "starts"])),
            ("/$defs/Arm/properties/share/maximum", json!(10_000)),
            ("/$defs/Bid/oneOf/3/properties/share_ppm/maximum", json!(1_000_000)),
            ("/$defs/WrittenMoment/anyOf/0/format", json!("date-time")),
        ] {
            assert_eq!(at(pointer), expected, "{pointer} in {schema:#}");
        }
        let text = schema.to_string();
        assert!(!text.contains("[`") && !text.contains("null"), "{schema:#}");
    }
}
