//! Checks a catalogue's document: all its problems with their paths, the codes of its rows, and the changes from the
//! current version. Reads and writes no store.

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::ads::budget::CampaignBudget;
use causeway_shared::ads::catalogue::Catalogue;
use causeway_shared::base::problems::ConfigProblem;
use causeway_shared::base::{json, limits};
use causeway_shared::facts::attributes::NameDictionary;
use causeway_shared::profiles::profile::QueriedNames;
use causeway_shared::settings::vocabulary::{Vocabulary, VocabularyWord};
use causeway_shared::wire::catalogue::encode_document;
use causeway_shared::wire::{WireError, flat};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use super::StoredVersion;
use crate::base::time_zones;
use crate::campaigns::offers::LimitedOffer;

/// Tables whose rows have an id and a code.
pub const SORTS: [&str; 5] = ["advertiser", "campaign", "ad_group", "ad", "experiment"];
/// Most problems reported at once.
const PROBLEMS: usize = 1_000;

/// Reason why a document was refused.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The document is not an object, or is not valid TOML or JSON.
    #[error("invalid document: {0}")]
    Form(String),
    /// The document was parsed but has problems.
    #[error("{} problems in the catalogue", .0.len())]
    Problems(Vec<ConfigProblem>),
}

/// A document without problems.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedDocument {
    /// The document as JSON, each row with its code.
    pub document: String,
    /// SHA-256 of the document.
    pub sha256: [u8; 32],
    /// The experiments as JSON.
    pub experiments: String,
    /// The campaigns' budgets as JSON.
    pub budgets: String,
    /// The campaigns with a limited number of recipients, as JSON.
    pub limited: String,
    /// The names that the document queries about people, as JSON.
    pub queried: String,
    /// Newly assigned codes: sort, id, code.
    pub codes: Vec<(String, String, u32)>,
    /// What would change.
    pub plan: CataloguePlan,
}

/// Codes by sort and id.
pub type Codes = BTreeMap<(String, String), u32>;

/// Parses a file: TOML if its name ends in `.toml`, otherwise JSON.
///
/// # Errors
/// [`CheckError::Form`].
pub fn read(name: &str, text: &str) -> Result<Value, CheckError> {
    let failed = |e: &dyn std::error::Error| CheckError::Form(e.to_string());
    // Some editors begin a file with the byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if name.to_ascii_lowercase().ends_with(".toml") {
        let mut document: Value = toml::from_str(text).map_err(|e| failed(&e))?;
        write_dates(&mut document);
        return Ok(document);
    }
    json::read(text.as_bytes()).map_err(|e| failed(&e))
}

/// Replaces TOML dates by their text. The TOML reader represents a date as an object with one private field.
fn write_dates(value: &mut Value) {
    const DATE: &str = "$__toml_private_datetime";
    match value {
        Value::Object(fields) if fields.len() == 1 && fields.get(DATE).is_some_and(Value::is_string) => {
            *value = fields.remove(DATE).unwrap_or_default();
        }
        Value::Object(fields) => fields.values_mut().for_each(write_dates),
        Value::Array(all) => all.iter_mut().for_each(write_dates),
        _ => {}
    }
}

/// A tenant's permanent names and codes.
#[derive(Debug, Clone, Copy)]
pub struct LastingRows<'a> {
    /// Words of actions and placements.
    pub words: &'a Vocabulary,
    /// Names of attributes.
    pub names: &'a NameDictionary,
    /// All assigned codes.
    pub codes: &'a Codes,
    /// Arms of all versions.
    pub arms: &'a Arms,
}

/// Arms: the experiment's code, the arm's code, the arm's id.
pub type Arms = BTreeSet<(u32, u8, String)>;

/// Checks a document against a tenant's permanent names and codes and against its current version.
///
/// # Errors
/// [`CheckError`].
pub fn check_document(
    known: &LastingRows<'_>,
    before: Option<&StoredVersion>,
    document: Value,
) -> Result<CheckedDocument, CheckError> {
    let LastingRows { words, names, codes: given, arms } = *known;
    let Value::Object(mut document) = document else {
        return Err(CheckError::Form("expected an object".to_owned()));
    };
    let mut problems = words_problems(&mut document, words);
    let (mut budgets, mut limited, mut fits) = (Vec::new(), Vec::new(), true);
    let mut queried = QueriedNames::default();
    let codes = assign_codes(&mut document, given, &mut problems);
    let document = Value::Object(document);
    match serde_json::from_value::<Catalogue>(document.clone()) {
        Err(_) => problems.extend(form_problems(&document)),
        Ok(catalogue) => {
            let targets = catalogue.targets("", names, words);
            problems.extend(zone_problems(&catalogue));
            problems.extend(arm_problems(&catalogue, arms));
            budgets = catalogue.campaigns.iter().filter_map(CampaignBudget::of).collect();
            limited = catalogue.campaigns.iter().filter_map(LimitedOffer::of).collect();
            // A catalogue that cannot be packed has other problems.
            let packed = catalogue.flat(names, words).map(|flat| {
                queried = flat.queried();
                encode_document("", &[0; 16], &flat::encode_catalogue(&flat))
            });
            fits = packed.ok() != Some(Err(WireError::TooLong));
            let found = catalogue.problems("", words).into_iter().chain(targets.err().into_iter().flatten());
            problems.extend(found.map(|problem| ConfigProblem {
                path: problem.path.trim_start_matches('.').to_owned(),
                message: problem.message,
            }));
        }
    }
    let text = document.to_string();
    if text.len() > limits::CATALOGUE_BYTES {
        let message = format!("the document has {1} bytes of JSON, {0} at most", limits::CATALOGUE_BYTES, text.len());
        problems.push(ConfigProblem { path: String::new(), message });
    } else if !fits {
        let message = format!(
            "the document has more than {} characters when packed for the KV: replace data that does not compress, such as a picture, by its URL",
            limits::CATALOGUE_CHARS
        );
        problems.push(ConfigProblem { path: String::new(), message });
    }
    if !problems.is_empty() {
        // Both checks may report the same problem of a row.
        let mut seen = BTreeSet::new();
        problems.retain(|problem| seen.insert((problem.path.clone(), problem.message.clone())));
        problems.truncate(PROBLEMS);
        return Err(CheckError::Problems(problems));
    }
    let plan = plan_changes(before, &text, &codes);
    let experiments = document.get("experiment").map_or_else(|| "[]".to_owned(), Value::to_string);
    let budgets = serde_json::to_string(&budgets).unwrap_or_default();
    let limited = serde_json::to_string(&limited).unwrap_or_default();
    let queried = serde_json::to_string(&queried).unwrap_or_default();
    let sha256 = Sha256::digest(&text).into();
    Ok(CheckedDocument { sha256, document: text, experiments, budgets, limited, queried, codes, plan })
}

/// Reports arms whose code belonged to another arm, and arms with a changed code: exposures and conversions are stored
/// by code.
fn arm_problems(catalogue: &Catalogue, known: &Arms) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    for (i, experiment) in catalogue.experiments.iter().enumerate() {
        for (j, arm) in experiment.arms.iter().enumerate() {
            let before = known.iter().filter(|(of, ..)| *of == experiment.code);
            let other = { before }.find(|(_, code, id)| (*code == arm.code) != (*id == arm.id));
            problems.extend(other.map(|(_, code, id)| ConfigProblem {
                path: format!("experiment[{i}].arm[{j}].code"),
                message: format!("codes are permanent: {code} belongs to the arm `{id}`"),
            }));
        }
    }
    problems
}

/// Reports unknown time zones.
fn zone_problems(catalogue: &Catalogue) -> impl Iterator<Item = ConfigProblem> {
    let named =
        catalogue.campaigns.iter().enumerate().filter_map(|(i, campaign)| Some((i, campaign.time_zone.as_ref()?)));
    named.filter(|(_, zone)| time_zones::find_zone(zone).is_none()).map(|(i, _)| ConfigProblem {
        path: format!("campaign[{i}].time_zone"),
        message: "unknown time zone: expected a name of the time zone database, such as Europe/Berlin".to_owned(),
    })
}

/// Removes the vocabulary from a document and reports words that differ from the configuration: edges read words from
/// their configuration.
fn words_problems(document: &mut Map<String, Value>, words: &Vocabulary) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    for (sort, known) in [("action_type", &words.action_types), ("view_type", &words.view_types)] {
        let Some(said) = document.remove(sort) else { continue };
        let Value::Array(said) = said else {
            problems.push(ConfigProblem { path: sort.to_owned(), message: "expected a list".to_owned() });
            continue;
        };
        for (i, word) in said.into_iter().enumerate() {
            let same = serde_json::from_value::<VocabularyWord>(word).is_ok_and(|word| known.contains(&word));
            if !same {
                let message =
                    "the word differs from the tenant's configuration, which is the only source of words for edges";
                problems.push(ConfigProblem { path: format!("{sort}[{i}]"), message: message.to_owned() });
            }
        }
    }
    problems
}

/// Assigns each row's code: the code of its id, else the code in the row, else the next unused code.
fn assign_codes(
    document: &mut Map<String, Value>,
    given: &Codes,
    problems: &mut Vec<ConfigProblem>,
) -> Vec<(String, String, u32)> {
    let mut new = Vec::new();
    for sort in SORTS {
        let Some(Value::Array(rows)) = document.get_mut(sort) else { continue };
        if rows.len() > limits::CATALOGUE_ROWS {
            problems
                .push(ConfigProblem { path: sort.to_owned(), message: format!("{} at most", limits::CATALOGUE_ROWS) });
            continue;
        }
        let mut owners: BTreeMap<u32, String> =
            given.iter().filter(|((of, _), _)| of == sort).map(|((_, id), code)| (*code, id.clone())).collect();
        let named = rows.iter().filter_map(|row| u32::try_from(row.get("code")?.as_u64()?).ok()).max();
        let mut next = owners.keys().next_back().copied().max(named).unwrap_or(0);
        for (i, row) in rows.iter_mut().enumerate() {
            let Some(fields) = row.as_object_mut() else { continue };
            let Some(id) = fields.get("id").and_then(Value::as_str).map(str::to_owned) else { continue };
            let mut say = |message| problems.push(ConfigProblem { path: format!("{sort}[{i}].code"), message });
            let before = given.get(&(sort.to_owned(), id.clone())).copied();
            let said = fields.get("code").map(|code| code.as_u64().and_then(|code| u32::try_from(code).ok()));
            let code = match (before, said) {
                // An invalid number is reported as a problem of the row's form.
                (_, Some(None)) => continue,
                (Some(before), Some(Some(said))) if said != before => {
                    say(format!("codes are permanent: `{id}` has the code {before}"));
                    continue;
                }
                (Some(before), _) => before,
                (None, Some(Some(said))) => match owners.get(&said).filter(|owner| **owner != id) {
                    Some(owner) => {
                        say(format!("codes are permanent: {said} belongs to `{owner}`"));
                        continue;
                    }
                    None => said,
                },
                (None, None) => {
                    next = next.saturating_add(1);
                    next
                }
            };
            if before.is_none() && owners.insert(code, id.clone()).is_none() {
                new.push((sort.to_owned(), id, code));
            }
            fields.insert("code".to_owned(), code.into());
        }
    }
    new
}

/// Reports values of the wrong form. Each row is parsed alone, so that one does not hide the others.
fn form_problems(document: &Value) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    let mut read = |path: String, key: &str, value: Value| {
        let read = serde_json::from_value::<Catalogue>(json!({ key: value }));
        read.map_err(|e| problems.push(ConfigProblem { path, message: e.to_string() })).is_ok()
    };
    for (key, value) in document.as_object().into_iter().flatten() {
        match value {
            Value::Array(rows) => {
                if !read(key.clone(), key, json!([])) {
                    continue;
                }
                for (i, row) in rows.iter().enumerate().take(PROBLEMS * 10) {
                    read(format!("{key}[{i}]"), key, json!([row]));
                }
            }
            other => {
                read(key.clone(), key, other.clone());
            }
        }
    }
    problems
}

/// The changes from the current version of the catalogue to a document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct CataloguePlan {
    /// Current version; null before the first.
    pub from: Option<u32>,
    /// Changes by sort of row, such as `campaign`.
    pub changes: BTreeMap<String, RowChanges>,
    /// Codes that are assigned for the first time.
    pub codes: Vec<AssignedCode>,
}

/// The changed rows of one sort, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct RowChanges {
    /// Rows that only the document has.
    pub added: Vec<String>,
    /// Rows that only the current version has.
    pub removed: Vec<String>,
    /// Rows that differ.
    pub changed: Vec<String>,
}

/// A code that an id gets permanently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AssignedCode {
    /// Sort of the row, such as `campaign`.
    pub sort: String,
    /// Id of the row.
    pub id: String,
    /// The code.
    pub code: u32,
}

/// The changes from the current version to a document: added, removed and changed rows by sort and id, and new codes.
#[must_use]
pub fn plan_changes(before: Option<&StoredVersion>, document: &str, codes: &[(String, String, u32)]) -> CataloguePlan {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let (old, new) = (before.map(|stored| read(&stored.document)).unwrap_or_default(), read(document));
    let mut changes = BTreeMap::new();
    for sort in SORTS {
        let (old, new) = (document_rows(&old, sort), document_rows(&new, sort));
        let only = |a: &BTreeMap<&str, &Value>, b: &BTreeMap<&str, &Value>| -> Vec<String> {
            a.keys().filter(|id| !b.contains_key(*id)).map(|id| (*id).to_owned()).collect()
        };
        let changed = new.iter().filter(|(id, row)| old.get(*id).is_some_and(|before| before != *row));
        let changed: Vec<String> = changed.map(|(id, _)| (*id).to_owned()).collect();
        let (added, removed) = (only(&new, &old), only(&old, &new));
        if !(added.is_empty() && removed.is_empty() && changed.is_empty()) {
            changes.insert(sort.to_owned(), RowChanges { added, removed, changed });
        }
    }
    let assigned =
        |(sort, id, code): &(String, String, u32)| AssignedCode { sort: sort.clone(), id: id.clone(), code: *code };
    let codes = codes.iter().map(assigned).collect();
    CataloguePlan { from: before.map(|stored| stored.version), changes, codes }
}

fn document_rows<'a>(document: &'a Value, sort: &str) -> BTreeMap<&'a str, &'a Value> {
    let rows = document.get(sort).and_then(Value::as_array).into_iter().flatten();
    rows.filter_map(|row| Some((row.get("id")?.as_str()?, row))).collect()
}
