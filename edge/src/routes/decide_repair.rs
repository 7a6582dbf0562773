//! Repairs the body of a decide call with invalid parts. The invalid parts are left out and named in the answer, so
//! that the page still gets ads for the rest.

use std::collections::BTreeSet;

use causeway_shared::base::limits;
use causeway_shared::targeting::filter::PageGaps;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::http::answer::HttpAnswer;
use crate::http::body_text::shown_name;
use crate::http::json_object::JsonFields;
use crate::http::whole_number::read_whole;
use crate::routes::decide_body::PlacementBody;

/// Most notes of an answer, which also bounds the answer to a hostile body.
const NOTES: usize = 64;

/// A note about one field of the body.
#[derive(Debug, Serialize)]
pub(super) struct FieldNote {
    pub(super) field: String,
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// The notes about the body.
#[derive(Debug, Default)]
pub(super) struct BodyNotes {
    /// Placements and ids that were left out.
    pub(super) rejected: Vec<FieldNote>,
    /// Further fields that were left out.
    pub(super) warnings: Vec<FieldNote>,
    /// Parts of the page that were left out. Filters treat them as unknown.
    pub(super) page_gaps: PageGaps,
}

impl BodyNotes {
    fn reject(&mut self, field: String, code: &'static str, message: impl Into<String>) {
        if self.rejected.len() < NOTES {
            self.rejected.push(FieldNote { field, code, message: message.into() });
        }
    }

    pub(super) fn warn(&mut self, field: String, code: &'static str, message: impl Into<String>) {
        if self.warnings.len() < NOTES {
            self.warnings.push(FieldNote { field, code, message: message.into() });
        }
    }

    fn warn_unknown(&mut self, field: String) {
        self.warn(field, "unknown_field", "unknown field of a decide call");
    }

    fn warn_repeated(&mut self, field: String) {
        let message = if field == "consent" { REFUSAL } else { "the field is repeated: its last value counts" };
        self.warn(field, "repeated", message);
    }
}

/// Turns an invalid body into the text of a valid one, with notes.
///
/// # Errors
/// The answer to a body that is not a JSON object.
pub(super) fn repair_body(text: &str) -> Result<(String, BodyNotes), Box<HttpAnswer>> {
    let refuse = |message: String| Box::new(HttpAnswer::error(400, "malformed", &message, None));
    let not_json = |error: serde_json::Error| refuse(format!("the body is not JSON: {error}"));
    let whole: &RawValue = serde_json::from_str(text).map_err(not_json)?;
    let JsonFields::<&RawValue>(fields) =
        serde_json::from_str(whole.get()).map_err(|_| refuse("the body is not a JSON object".to_owned()))?;
    let mut notes = BodyNotes::default();
    let mut mended = Map::new();
    for (name, raw) in fields {
        if mended.contains_key(&name) {
            notes.warn_repeated(shown_name(&name));
        }
        if name == "consent" {
            // A repeated consent counts as a refusal, whatever its values are.
            let consent = if mended.contains_key(&name) { refuse_consent() } else { repair_consent(raw, &mut notes) };
            mended.insert(name, consent);
            continue;
        }
        let value: Value = serde_json::from_str(raw.get()).map_err(not_json)?;
        let repaired = match name.as_str() {
            _ if value.is_null() => continue,
            "placements" => Some(repair_placements(value, &mut notes)),
            "page" => Some(repair_page(value, &mut notes)),
            "user" => Some(repair_user(value, &mut notes)),
            "shown" => Some(repair_shown(value, &mut notes)),
            "explain" | "page_view" => repair_bool(&name, value, &mut notes),
            _ => {
                notes.warn_unknown(shown_name(&name));
                None
            }
        };
        mended.extend(repaired.map(|repaired| (name, repaired)));
    }
    Ok((Value::Object(mended).to_string(), notes))
}

fn repair_bool(name: &str, value: Value, notes: &mut BodyNotes) -> Option<Value> {
    if !value.is_boolean() {
        notes.warn(name.to_owned(), "malformed", "expected true or false");
    }
    value.is_boolean().then_some(value)
}

/// Repairs `shown`. Of more than [`limits::SHOWN`] insertions the last ones are read, because they are nearest to the
/// requested placements.
fn repair_shown(value: Value, notes: &mut BodyNotes) -> Value {
    let Value::Array(mut shown) = value else {
        notes.warn("shown".to_owned(), "malformed", "expected an array of insertions");
        return json!([]);
    };
    if shown.len() > limits::SHOWN {
        notes.warn("shown".to_owned(), "out_of_bounds", format!("only the last {} insertions are read", limits::SHOWN));
        shown.drain(..shown.len() - limits::SHOWN);
    }
    // A value that is not a text becomes an empty text, which is reported as an invalid insertion.
    shown.into_iter().map(|insertion| if insertion.is_string() { insertion } else { "".into() }).collect()
}

/// The fields of an object without nulls; empty if the value is not an object.
fn fields_of(at: &str, value: Value, notes: &mut BodyNotes) -> Vec<(String, Value)> {
    let Value::Object(fields) = value else {
        notes.warn(at.to_owned(), "malformed", "expected an object");
        return Vec::new();
    };
    fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

fn repair_placements(value: Value, notes: &mut BodyNotes) -> Value {
    let Value::Array(placements) = value else {
        notes.reject("placements".to_owned(), "malformed", "expected an array");
        return json!([]);
    };
    let mut repaired = Vec::new();
    for (i, placement) in placements.into_iter().enumerate() {
        let at = format!("placements[{i}]");
        if repaired.len() == limits::PLACEMENTS {
            notes.reject(
                at,
                "out_of_bounds",
                format!("at most {} placements are allowed in one call", limits::PLACEMENTS),
            );
            continue;
        }
        let Value::Object(fields) = placement else {
            notes.reject(at, "malformed", "expected an object");
            continue;
        };
        let mut placement = Map::new();
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
            match name.as_str() {
                "id" | "sizes" | "view_type" | "floor_micros" => _ = placement.insert(name, value),
                "size" => {
                    let message = "a placement has no `size`: `sizes` is an array of [width, height]";
                    notes.warn(format!("{at}.size"), "unknown_field", message);
                }
                _ => notes.warn_unknown(format!("{at}.{}", shown_name(&name))),
            }
        }
        let placement = Value::Object(placement);
        match serde_json::from_str::<PlacementBody<'_>>(&placement.to_string()).map(|placement| placement.check()) {
            Ok(Ok(())) => repaired.push(placement),
            Ok(Err((field, message))) => notes.reject(format!("{at}.{field}"), "out_of_bounds", message),
            Err(error) => notes.reject(at, "malformed", error.to_string()),
        }
    }
    Value::Array(repaired)
}

fn repair_page(value: Value, notes: &mut BodyNotes) -> Value {
    let mut page = Map::new();
    if !value.is_object() {
        notes.page_gaps = PageGaps { url: true, keywords: true };
    }
    for (name, value) in fields_of("page", value, notes) {
        let at = format!("page.{}", shown_name(&name));
        match (name.as_str(), value) {
            ("url" | "referrer", Value::String(text)) if text.len() <= limits::URL_BYTES => {
                page.insert(name, text.into());
            }
            ("url" | "referrer", _) => {
                notes.page_gaps.url |= name == "url";
                notes.warn(at, "out_of_bounds", format!("expected a text of at most {} bytes", limits::URL_BYTES));
            }
            ("keywords", Value::Array(keywords)) => {
                let is_good =
                    |keyword: &Value| keyword.as_str().is_some_and(|keyword| keyword.len() <= limits::NAME_BYTES);
                let all = keywords.len();
                let repaired: Vec<Value> = keywords.into_iter().filter(is_good).take(limits::KEYWORDS).collect();
                if repaired.len() < all {
                    notes.page_gaps.keywords = true;
                    let message =
                        format!("only {} texts of at most {} bytes are read", limits::KEYWORDS, limits::NAME_BYTES);
                    notes.warn(at, "out_of_bounds", message);
                }
                page.insert(name, repaired.into());
            }
            ("keywords", _) => {
                notes.page_gaps.keywords = true;
                notes.warn(at, "malformed", "expected an array of texts");
            }
            _ => notes.warn_unknown(at),
        }
    }
    Value::Object(page)
}

fn repair_user(value: Value, notes: &mut BodyNotes) -> Value {
    let mut user = Map::new();
    for (name, value) in fields_of("user", value, notes) {
        let at = format!("user.{}", shown_name(&name));
        match name.as_str() {
            "ids" | "proofs" => {
                let mut repaired = Map::new();
                for (kind, value) in fields_of(&at, value, notes) {
                    let at = format!("{at}.{}", shown_name(&kind));
                    if repaired.len() == limits::KINDS || kind.is_empty() || kind.len() > limits::NAME_BYTES {
                        notes.reject(
                            at,
                            "out_of_bounds",
                            format!("at most {} kinds are allowed, each with a name", limits::KINDS),
                        );
                    } else if value.is_string() {
                        repaired.insert(kind, value);
                    } else {
                        notes.reject(at, "malformed", "expected a text");
                    }
                }
                user.insert(name, repaired.into());
            }
            "attributes" => _ = user.insert(name, value),
            _ => notes.warn_unknown(at),
        }
    }
    Value::Object(user)
}

/// The message for a consent signal that counts as a refusal because it cannot be decoded.
const REFUSAL: &str = "the consent signal cannot be decoded and counts as a refusal";

/// A consent that cannot be decoded, and so refuses.
fn refuse_consent() -> Value {
    json!({ "tcf": "" })
}

/// Repairs a consent. A signal that is malformed or given twice cannot be decoded, and remains a refusal.
fn repair_consent(raw: &RawValue, notes: &mut BodyNotes) -> Value {
    let fields = match serde_json::from_str::<Option<JsonFields<Value>>>(raw.get()) {
        Ok(fields) => fields.map_or_else(Vec::new, |JsonFields(fields)| fields),
        Err(_) => {
            notes.warn("consent".to_owned(), "malformed", REFUSAL);
            return refuse_consent();
        }
    };
    let (mut names, mut consent, mut is_refusal) = (BTreeSet::new(), Map::new(), false);
    for (name, value) in fields {
        let at = format!("consent.{}", shown_name(&name));
        if !matches!(name.as_str(), "tcf" | "gpp" | "gpp_sid") {
            if !value.is_null() {
                notes.warn_unknown(at);
            }
            continue;
        }
        let is_repeated = !names.insert(name.clone());
        if value.is_null() && !is_repeated {
            continue;
        }
        let signal = if is_repeated { None } else { read_signal(&name, value) };
        if signal.is_none() {
            notes.warn(at, if is_repeated { "repeated" } else { "malformed" }, REFUSAL);
        }
        is_refusal |= signal.is_none();
        consent.extend(signal.map(|signal| (name, signal)));
    }
    // A valid signal may state that an invalid one does not apply. The consent is a refusal nevertheless.
    if is_refusal { refuse_consent() } else { Value::Object(consent) }
}

/// The value of a consent signal; `None` if it is malformed.
fn read_signal(name: &str, value: Value) -> Option<Value> {
    if name == "gpp_sid" { section_ids(&value).map(Into::into) } else { Some(value).filter(Value::is_string) }
}

/// The ids of sections, each a number or a number as text.
fn section_ids(value: &Value) -> Option<Vec<i32>> {
    let id = |value: &Value| match value {
        Value::String(text) => text.trim().parse().ok(),
        _ => read_whole(value).and_then(|id| i32::try_from(id).ok()),
    };
    value.as_array()?.iter().map(id).collect()
}
