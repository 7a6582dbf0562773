//! A catalogue's document: what is wrong with it, all at once and with the path of each, which codes its rows get, and
//! what would change. It reads no store, and keeps nothing.

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
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::Kept;
use crate::base::time_zones;
use crate::campaigns::offers::LimitedOffer;

/// Whose rows have an id and a code each.
pub const SORTS: [&str; 5] = ["advertiser", "campaign", "ad_group", "ad", "experiment"];
/// Problems said at once; the others come when these are mended.
const PROBLEMS: usize = 1_000;

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It is not an object, or not of its file's form.
    #[error("the document is not understood: {0}")]
    Form(String),
    /// It can be read and cannot be used.
    #[error("{} problems in the catalogue", .0.len())]
    Problems(Vec<ConfigProblem>),
}

/// A document without problems.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedDocument {
    /// As JSON, every row with its code.
    pub document: String,
    /// The SHA-256 of it.
    pub sha256: [u8; 32],
    /// Its experiments, as JSON.
    pub experiments: String,
    /// The budgets of its campaigns, as JSON.
    pub budgets: String,
    /// Its campaigns with only so many recipients, as JSON.
    pub limited: String,
    /// What it asks of people, as JSON.
    pub queried: String,
    /// Codes given for the first time: sort, id, code.
    pub codes: Vec<(String, String, u32)>,
    /// What would change.
    pub plan: Value,
}

/// Codes by sort and id.
pub type Codes = BTreeMap<(String, String), u32>;

/// Reads a file of the name's form: `.toml`, else JSON.
///
/// # Errors
/// [`CheckError::Form`].
pub fn read(name: &str, text: &str) -> Result<Value, CheckError> {
    let failed = |e: &dyn std::error::Error| CheckError::Form(e.to_string());
    // Editors of some systems begin a file with the byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if name.to_ascii_lowercase().ends_with(".toml") {
        let mut document: Value = toml::from_str(text).map_err(|e| failed(&e))?;
        write_dates(&mut document);
        return Ok(document);
    }
    json::read(text.as_bytes()).map_err(|e| failed(&e))
}

/// Dates of TOML as the texts that they are: as JSON each is an object of one name of the reader's own.
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

/// What a tenant has for ever.
#[derive(Debug, Clone, Copy)]
pub struct LastingRows<'a> {
    /// Its words of actions and placements.
    pub words: &'a Vocabulary,
    /// Its names of attributes.
    pub names: &'a NameDictionary,
    /// Its codes given so far.
    pub codes: &'a Codes,
    /// The arms there ever were.
    pub arms: &'a Arms,
}

/// Arms, by their experiment's code: each one's code, and its id.
pub type Arms = BTreeSet<(u32, u8, String)>;

/// Checks a document against what a tenant has for ever and the version that is current.
///
/// # Errors
/// [`CheckError`].
pub fn check_document(
    known: &LastingRows<'_>,
    before: Option<&Kept>,
    document: Value,
) -> Result<CheckedDocument, CheckError> {
    let LastingRows { words, names, codes: given, arms } = *known;
    let Value::Object(mut document) = document else {
        return Err(CheckError::Form("it is not an object".to_owned()));
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
            // One that cannot be packed has other problems.
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
        let message = format!("{} bytes of JSON at most, it has {}", limits::CATALOGUE_BYTES, text.len());
        problems.push(ConfigProblem { path: String::new(), message });
    } else if !fits {
        let message = format!(
            "packed for the KV it has over {} characters: what does not compress, such as a picture, belongs at an address",
            limits::CATALOGUE_CHARS
        );
        problems.push(ConfigProblem { path: String::new(), message });
    }
    if !problems.is_empty() {
        // A row may be wrong in both ways at once.
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

/// The arms that have another's code, or another code than they had: who saw one, and what came of it, is kept by the code.
fn arm_problems(catalogue: &Catalogue, known: &Arms) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    for (i, experiment) in catalogue.experiments.iter().enumerate() {
        for (j, arm) in experiment.arms.iter().enumerate() {
            let before = known.iter().filter(|(of, ..)| *of == experiment.code);
            let other = { before }.find(|(_, code, id)| (*code == arm.code) != (*id == arm.id));
            problems.extend(other.map(|(_, code, id)| ConfigProblem {
                path: format!("experiment[{i}].arm[{j}].code"),
                message: format!("codes are for ever: {code} is the arm `{id}`"),
            }));
        }
    }
    problems
}

/// The time zones that are none.
fn zone_problems(catalogue: &Catalogue) -> impl Iterator<Item = ConfigProblem> {
    let named =
        catalogue.campaigns.iter().enumerate().filter_map(|(i, campaign)| Some((i, campaign.time_zone.as_ref()?)));
    named.filter(|(_, zone)| time_zones::find_zone(zone).is_none()).map(|(i, _)| ConfigProblem {
        path: format!("campaign[{i}].time_zone"),
        message: "a name of the time zone database is needed, such as Europe/Berlin".to_owned(),
    })
}

/// Takes the words out of a document: edges know them from their configuration, so what it says of them must agree.
fn words_problems(document: &mut Map<String, Value>, words: &Vocabulary) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    for (sort, known) in [("verb", &words.verbs), ("view_type", &words.view_types)] {
        let Some(said) = document.remove(sort) else { continue };
        let Value::Array(said) = said else {
            problems.push(ConfigProblem { path: sort.to_owned(), message: "a list is needed".to_owned() });
            continue;
        };
        for (i, word) in said.into_iter().enumerate() {
            let same = serde_json::from_value::<VocabularyWord>(word).is_ok_and(|word| known.contains(&word));
            if !same {
                let message = "it is not what the tenant's configuration says; edges know words from there alone";
                problems.push(ConfigProblem { path: format!("{sort}[{i}]"), message: message.to_owned() });
            }
        }
    }
    problems
}

/// Gives each row its code: the one its id was given before, the one it names, or the next that nobody ever had.
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
                // What is no number is said of the row's form.
                (_, Some(None)) => continue,
                (Some(before), Some(Some(said))) if said != before => {
                    say(format!("`{id}` has the code {before} for ever"));
                    continue;
                }
                (Some(before), _) => before,
                (None, Some(Some(said))) => match owners.get(&said).filter(|owner| **owner != id) {
                    Some(owner) => {
                        say(format!("the code {said} is that of `{owner}` for ever"));
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

/// What is not of the form, row by row: each is read alone, so that one does not hide the others.
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

/// What changes from the current version to a document: rows by sort and id, and the codes given.
#[must_use]
pub fn plan_changes(before: Option<&Kept>, document: &str, codes: &[(String, String, u32)]) -> Value {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let (old, new) = (before.map(|kept| read(&kept.document)).unwrap_or_default(), read(document));
    let mut changes = Map::new();
    for sort in SORTS {
        let (old, new) = (document_rows(&old, sort), document_rows(&new, sort));
        let only = |a: &BTreeMap<&str, &Value>, b: &BTreeMap<&str, &Value>| -> Vec<String> {
            a.keys().filter(|id| !b.contains_key(*id)).map(|id| (*id).to_owned()).collect()
        };
        let changed = new.iter().filter(|(id, row)| old.get(*id).is_some_and(|before| before != *row));
        let changed: Vec<&str> = changed.map(|(id, _)| *id).collect();
        let (added, removed) = (only(&new, &old), only(&old, &new));
        if !(added.is_empty() && removed.is_empty() && changed.is_empty()) {
            changes.insert(sort.to_owned(), json!({ "added": added, "removed": removed, "changed": changed }));
        }
    }
    let codes: Vec<Value> =
        codes.iter().map(|(sort, id, code)| json!({ "sort": sort, "id": id, "code": code })).collect();
    json!({ "from": before.map(|kept| kept.version), "changes": changes, "codes": codes })
}

fn document_rows<'a>(document: &'a Value, sort: &str) -> BTreeMap<&'a str, &'a Value> {
    let rows = document.get(sort).and_then(Value::as_array).into_iter().flatten();
    rows.filter_map(|row| Some((row.get("id")?.as_str()?, row))).collect()
}
