//! A decide call that is not quite of its form. What cannot be used is left out and named in the answer, so that a page still
//! gets ads for all the rest.

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

/// Notes of an answer, at most: a hostile body names few of its faults.
const NOTES: usize = 64;

/// What the answer says of one field of the body.
#[derive(Debug, Serialize)]
pub(super) struct FieldNote {
    pub(super) field: String,
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// What the answer says of the body.
#[derive(Debug, Default)]
pub(super) struct BodyNotes {
    /// Placements and ids that were left out.
    pub(super) rejected: Vec<FieldNote>,
    /// Further fields that were left out.
    pub(super) warnings: Vec<FieldNote>,
    /// What of the page was left out: filters take it for unknown.
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
        self.warn(field, "unknown_field", "a decide call has no such field");
    }

    fn warn_repeated(&mut self, field: String) {
        let message = if field == "consent" { REFUSAL } else { "the field is repeated: its last value counts" };
        self.warn(field, "repeated", message);
    }
}

/// A body of the right form, as text, from one that is not.
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
            // A consent that is repeated is no consent, whichever of the two says more.
            let consent = if mended.contains_key(&name) { refuse_consent() } else { repair_consent(raw, &mut notes) };
            mended.insert(name, consent);
            continue;
        }
        let value: Value = serde_json::from_str(raw.get()).map_err(not_json)?;
        let kept = match name.as_str() {
            _ if value.is_null() => continue,
            "placements" => Some(repair_placements(value, &mut notes)),
            "page" => Some(repair_page(value, &mut notes)),
            "user" => Some(repair_user(value, &mut notes)),
            "shown" => Some(repair_shown(value, &mut notes)),
            "explain" | "page_view" => keep_bool(&name, value, &mut notes),
            _ => {
                notes.warn_unknown(shown_name(&name));
                None
            }
        };
        mended.extend(kept.map(|kept| (name, kept)));
    }
    Ok((Value::Object(mended).to_string(), notes))
}

fn keep_bool(name: &str, value: Value, notes: &mut BodyNotes) -> Option<Value> {
    if !value.is_boolean() {
        notes.warn(name.to_owned(), "malformed", "true or false is needed");
    }
    value.is_boolean().then_some(value)
}

/// Of more ads than [`limits::SHOWN`] the last ones are read, which are the nearest to what is asked for.
fn repair_shown(value: Value, notes: &mut BodyNotes) -> Value {
    let Value::Array(mut shown) = value else {
        notes.warn("shown".to_owned(), "malformed", "an array of insertions is needed");
        return json!([]);
    };
    if shown.len() > limits::SHOWN {
        notes.warn("shown".to_owned(), "out_of_bounds", format!("the last {} insertions are read", limits::SHOWN));
        shown.drain(..shown.len() - limits::SHOWN);
    }
    // What is no text opens as no insertion, and is named as one.
    shown.into_iter().map(|insertion| if insertion.is_string() { insertion } else { "".into() }).collect()
}

/// The fields of an object without nulls; none where the value is no object.
fn fields_of(at: &str, value: Value, notes: &mut BodyNotes) -> Vec<(String, Value)> {
    let Value::Object(fields) = value else {
        notes.warn(at.to_owned(), "malformed", "an object is needed");
        return Vec::new();
    };
    fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

fn repair_placements(value: Value, notes: &mut BodyNotes) -> Value {
    let Value::Array(placements) = value else {
        notes.reject("placements".to_owned(), "malformed", "an array is needed");
        return json!([]);
    };
    let mut kept = Vec::new();
    for (i, placement) in placements.into_iter().enumerate() {
        let at = format!("placements[{i}]");
        if kept.len() == limits::PLACEMENTS {
            notes.reject(at, "out_of_bounds", format!("{} placements at most in one call", limits::PLACEMENTS));
            continue;
        }
        let Value::Object(fields) = placement else {
            notes.reject(at, "malformed", "an object is needed");
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
            Ok(Ok(())) => kept.push(placement),
            Ok(Err((field, message))) => notes.reject(format!("{at}.{field}"), "out_of_bounds", message),
            Err(error) => notes.reject(at, "malformed", error.to_string()),
        }
    }
    Value::Array(kept)
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
                notes.warn(at, "out_of_bounds", format!("a text of {} bytes at most is needed", limits::URL_BYTES));
            }
            ("keywords", Value::Array(keywords)) => {
                let is_good =
                    |keyword: &Value| keyword.as_str().is_some_and(|keyword| keyword.len() <= limits::NAME_BYTES);
                let all = keywords.len();
                let kept: Vec<Value> = keywords.into_iter().filter(is_good).take(limits::KEYWORDS).collect();
                if kept.len() < all {
                    notes.page_gaps.keywords = true;
                    let message =
                        format!("{} texts of {} bytes at most are read", limits::KEYWORDS, limits::NAME_BYTES);
                    notes.warn(at, "out_of_bounds", message);
                }
                page.insert(name, kept.into());
            }
            ("keywords", _) => {
                notes.page_gaps.keywords = true;
                notes.warn(at, "malformed", "an array of texts is needed");
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
                let mut kept = Map::new();
                for (kind, value) in fields_of(&at, value, notes) {
                    let at = format!("{at}.{}", shown_name(&kind));
                    if kept.len() == limits::KINDS || kind.is_empty() || kind.len() > limits::NAME_BYTES {
                        notes.reject(at, "out_of_bounds", format!("{} kinds at most, each with a name", limits::KINDS));
                    } else if value.is_string() {
                        kept.insert(kind, value);
                    } else {
                        notes.reject(at, "malformed", "a text is needed");
                    }
                }
                user.insert(name, kept.into());
            }
            "attributes" => _ = user.insert(name, value),
            _ => notes.warn_unknown(at),
        }
    }
    Value::Object(user)
}

/// What the answer says of a consent signal that refuses because it cannot be decoded.
const REFUSAL: &str = "the consent signal cannot be decoded and counts as a refusal";

/// A consent that cannot be decoded.
fn refuse_consent() -> Value {
    json!({ "tcf": "" })
}

/// A signal of another form than it should have, or one that is given twice, is there and cannot be decoded: it stays a
/// refusal.
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
    // Other signals may say that a bad one does not apply: it refuses all the same.
    if is_refusal { refuse_consent() } else { Value::Object(consent) }
}

/// The value of a consent signal; `None` where it is of another form than it should have.
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
