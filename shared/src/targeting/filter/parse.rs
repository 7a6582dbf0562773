//! Parser of filter documents. All problems are reported at once, each with its path. A document that exceeds a bound
//! is refused there and not read further.

mod operand;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize as _;
use serde_json::{Map, Value as Json};

use self::operand::{FieldOperand, ValueSort};
use super::count::{CountQuestion, CountSource};
use super::field::FilterField;
use super::{FieldCondition, FieldTest, Filter, FilterNode, GroupOperator, TextOrder};
use crate::base::limits;
use crate::base::problems::{ConfigProblem, ProblemList};
use crate::base::time::DAY_MINUTES;
use crate::facts::actions::{AdLevel, TimeWindow};
use crate::facts::attributes::NameDictionary;
use crate::facts::fact::{PAGE, PURCHASE};
use crate::settings::vocabulary::Vocabulary;

/// Most documents in one filter: the filter itself, and a chain of nested documents for each condition.
const DOCUMENTS: usize = limits::FILTER_CONDITIONS * limits::FILTER_DEPTH + 1;
/// Bytes of a name that a problem message repeats.
const SHOWN: usize = 64;

/// Names and words that a filter may use.
#[derive(Debug, Clone, Copy)]
pub struct FilterWords<'a> {
    /// Attribute names with their kinds.
    pub attributes: &'a NameDictionary,
    /// Action types and view types.
    pub vocabulary: &'a Vocabulary,
    /// Ids of the catalogue's entities.
    pub entities: &'a Entities<'a>,
    /// The side that answers counts of a person's history.
    pub answers: CountAnswerer,
}

/// Codes by id, for each level in the order of [`AdLevel::ALL`].
pub type Entities<'a> = [BTreeMap<&'a str, u32>; 4];

/// The side that answers counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountAnswerer {
    /// A snapshot: page views and purchases of all time or of at most [`limits::CAP_DAYS`] days, and actions of at most
    /// as many days. All other counts are refused.
    Snapshot,
    /// The origin: a count that it cannot answer is `None`.
    Origin,
    /// The origin, for audiences: a filter on a page, a location or a device is refused.
    Audience,
}

/// Parses a filter; `at` is the path of the document. An empty document matches everyone.
///
/// # Errors
/// All problems of the document.
pub fn parse(value: &Json, at: &str, words: &FilterWords<'_>) -> Result<Filter, Vec<ConfigProblem>> {
    let mut parser = FilterParser::new(at, words);
    let nodes = parser.document(at, value, 1);
    if !parser.found.0.is_empty() {
        return Err(parser.found.0);
    }
    let questions = parser.counts;
    let counts: Vec<CountQuestion> = questions.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
    let place = |at| super::count::question_index(&counts, questions.get(at as usize));
    let root = FilterNode::group(GroupOperator::All, nodes).with_counts(&place);
    Ok(Filter { counts, root })
}

struct FilterParser<'a> {
    at: &'a str,
    words: &'a FilterWords<'a>,
    found: ProblemList,
    counts: Vec<CountQuestion>,
    conditions: usize,
    documents: usize,
    text_bytes: usize,
}

impl<'a> FilterParser<'a> {
    fn new(at: &'a str, words: &'a FilterWords<'a>) -> Self {
        let found = ProblemList::default();
        Self { at, words, found, counts: Vec::new(), conditions: 0, documents: 0, text_bytes: 0 }
    }

    fn say(&mut self, path: &str, message: impl Into<String>) {
        self.found.say(path, message);
    }

    /// Whether one more condition may be read. The first one over the bound is reported, and nothing after it.
    fn takes_one(&mut self) -> bool {
        self.conditions += 1;
        if self.conditions == limits::FILTER_CONDITIONS + 1 {
            let (at, message) = (self.at, format!("{} conditions at most", limits::FILTER_CONDITIONS));
            self.say(at, message);
        }
        self.conditions <= limits::FILTER_CONDITIONS
    }

    fn is_full(&self) -> bool {
        self.conditions > limits::FILTER_CONDITIONS || self.documents > DOCUMENTS
    }

    /// Returns an object that is within the bounds of depth and number; otherwise reports the problem.
    fn object<'j>(&mut self, at: &str, value: &'j Json, depth: usize) -> Option<&'j Map<String, Json>> {
        self.documents += 1;
        if self.is_full() {
            if self.documents == DOCUMENTS + 1 {
                let (at, message) = (self.at, format!("{DOCUMENTS} documents at most"));
                self.say(at, message);
            }
            return None;
        }
        if depth > limits::FILTER_DEPTH {
            self.say(at, format!("{} levels at most", limits::FILTER_DEPTH));
            return None;
        }
        let object = value.as_object();
        match object {
            None => self.say(at, format!("{} was given: an object is needed", kind_of(value))),
            Some(object) if object.is_empty() && depth > 1 => self.say(at, "a condition is needed"),
            Some(_) => {}
        }
        object
    }

    fn document(&mut self, at: &str, value: &Json, depth: usize) -> Vec<FilterNode> {
        let mut nodes = Vec::new();
        let Some(object) = self.object(at, value, depth) else { return nodes };
        for (key, value) in object {
            if self.is_full() {
                break;
            }
            let here = format!("{at}.{}", shown(key));
            match key.as_str() {
                "$and" => nodes.push(self.documents(&here, value, depth, GroupOperator::All)),
                "$or" => nodes.push(self.documents(&here, value, depth, GroupOperator::Any)),
                "$not" => {
                    nodes.push(FilterNode::group(GroupOperator::All, self.document(&here, value, depth + 1)).negated());
                }
                key => nodes.extend(self.field(&here, key, value, depth)),
            }
        }
        nodes
    }

    fn documents(&mut self, at: &str, value: &Json, depth: usize, join: GroupOperator) -> FilterNode {
        let entries = value.as_array().map(Vec::as_slice).unwrap_or_default();
        if entries.is_empty() || entries.len() > limits::FILTER_CONDITIONS {
            self.say(at, format!("an array of 1 to {} documents is needed", limits::FILTER_CONDITIONS));
            return FilterNode::Group(join, Vec::new());
        }
        let mut nodes = Vec::with_capacity(entries.len());
        for (i, entry) in entries.iter().enumerate() {
            let inner = self.document(&format!("{at}[{i}]"), entry, depth + 1);
            nodes.push(FilterNode::group(GroupOperator::All, inner));
        }
        FilterNode::group(join, nodes)
    }

    /// Parses a field and its condition; empty if there is a problem.
    fn field(&mut self, at: &str, name: &str, value: &Json, depth: usize) -> Vec<FilterNode> {
        if let Some(event) = name.strip_prefix("events.") {
            let what = self.event(at, event);
            return self.counted(at, what, value, depth);
        }
        if let Some(action_type) = name.strip_prefix("actions.") {
            let what = self.action(at, action_type, value);
            return self.counted(at, what, value, depth);
        }
        match FieldOperand::of(name, self.words) {
            Ok(operand) => self.operators(at, &operand, value, depth),
            Err(message) => {
                if self.takes_one() {
                    self.say(at, message);
                }
                Vec::new()
            }
        }
    }

    /// Parses operators, or a bare value, which means `$eq`.
    fn operators(&mut self, at: &str, operand: &FieldOperand<'_>, value: &Json, depth: usize) -> Vec<FilterNode> {
        if !value.is_object() {
            return self.operator(at, operand, "$eq", value, depth).into_iter().collect();
        }
        let Some(object) = self.object(at, value, 1) else { return Vec::new() };
        if object.is_empty() {
            self.say(at, "an operator is needed");
        }
        self.each(at, operand, object, depth)
    }

    fn each(
        &mut self,
        at: &str,
        operand: &FieldOperand<'_>,
        object: &Map<String, Json>,
        depth: usize,
    ) -> Vec<FilterNode> {
        let mut nodes = Vec::new();
        for (key, value) in object {
            if self.is_full() {
                break;
            }
            nodes.extend(self.operator(&format!("{at}.{}", shown(key)), operand, key, value, depth));
        }
        nodes
    }

    fn operator(
        &mut self,
        at: &str,
        operand: &FieldOperand<'_>,
        key: &str,
        value: &Json,
        depth: usize,
    ) -> Option<FilterNode> {
        if key == "$not" {
            let object = self.object(at, value, depth + 1).filter(|object| !object.is_empty())?;
            return Some(FilterNode::group(GroupOperator::All, self.each(at, operand, object, depth + 1)).negated());
        }
        if !self.takes_one() {
            return None;
        }
        let (negated, test) = match key {
            "$eq" | "$ne" => (key == "$ne", self.one(at, operand, value)?.into()),
            "$in" | "$nin" => (key == "$nin", self.list(at, operand, value)?),
            "$gt" | "$gte" | "$lt" | "$lte" => (false, self.order(at, operand, key, value)?),
            "$exists" if !matches!(operand.field, FilterField::Count(_)) => match value.as_bool() {
                Some(exists) => (!exists, FieldTest::Exists),
                None => {
                    self.say(at, format!("{} was given: true or false is needed", kind_of(value)));
                    return None;
                }
            },
            _ => {
                self.say(at, format!("there is no operator `{}` here", shown(key)));
                return None;
            }
        };
        Some(FilterNode::Leaf(FieldCondition { field: operand.field, negated, test }))
    }

    fn one(&mut self, at: &str, operand: &FieldOperand<'_>, value: &Json) -> Option<FieldValue> {
        match operand.one(value, self.words) {
            Ok(one) => {
                if let FieldValue::Text(text) = &one {
                    self.text_bytes += text.len();
                    if self.text_bytes > limits::FILTER_TEXT_BYTES {
                        self.say(at, format!("{} bytes of texts at most in one filter", limits::FILTER_TEXT_BYTES));
                        // Suppresses all further problems.
                        self.conditions = limits::FILTER_CONDITIONS + 1;
                        return None;
                    }
                }
                Some(one)
            }
            Err(message) => {
                self.say(at, message);
                None
            }
        }
    }

    fn list(&mut self, at: &str, operand: &FieldOperand<'_>, value: &Json) -> Option<FieldTest> {
        let entries = value.as_array().map(Vec::as_slice).unwrap_or_default();
        if entries.is_empty() || entries.len() > limits::FILTER_LIST {
            self.say(at, format!("an array of 1 to {} values is needed", limits::FILTER_LIST));
            return None;
        }
        let (mut numbers, mut texts) = (Vec::new(), Vec::new());
        for (i, entry) in entries.iter().enumerate() {
            match self.one(&format!("{at}[{i}]"), operand, entry) {
                Some(FieldValue::Number(number)) => numbers.push(number),
                Some(FieldValue::Text(text)) => texts.push(text),
                None if self.is_full() => return None,
                None => {}
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        texts.sort_unstable();
        texts.dedup();
        Some(if operand.field.is_text() { FieldTest::Texts(texts) } else { FieldTest::Numbers(numbers) })
    }

    fn order(&mut self, at: &str, operand: &FieldOperand<'_>, key: &str, value: &Json) -> Option<FieldTest> {
        if !operand.field.is_ordered() {
            self.say(at, format!("`{}` has no order: use $eq, $ne, $in or $nin", operand.name));
            return None;
        }
        let test = match self.one(at, operand, value)? {
            FieldValue::Number(number) => match key {
                "$gt" => number.checked_add(1).map(FieldTest::AtLeast),
                "$gte" => Some(FieldTest::AtLeast(number)),
                "$lt" => number.checked_sub(1).map(FieldTest::AtMost),
                _ => Some(FieldTest::AtMost(number)),
            },
            FieldValue::Text(text) => Some(match key {
                "$gt" => FieldTest::Text(TextOrder::After, text),
                "$gte" => FieldTest::Text(TextOrder::AtOrAfter, text),
                "$lt" => FieldTest::Text(TextOrder::Before, text),
                _ => FieldTest::Text(TextOrder::AtOrBefore, text),
            }),
        };
        if test.is_none() {
            self.say(at, "no number can satisfy this comparison");
        }
        test
    }
}

/// Counts of events and actions.
impl FilterParser<'_> {
    fn event(&mut self, at: &str, name: &str) -> Option<CountSource> {
        let what = match name {
            PAGE => CountSource::Pages,
            PURCHASE => CountSource::Purchases,
            _ if name.is_empty() || name.len() > limits::NAME_BYTES => {
                self.say(at, format!("an event's name has 1 to {} bytes", limits::NAME_BYTES));
                return None;
            }
            _ => CountSource::Event(name.to_owned()),
        };
        if self.words.answers == CountAnswerer::Snapshot && matches!(what, CountSource::Event(_)) {
            self.say(at, "snapshots count only `page` and `purchase`: use the segment of an audience for other events");
        }
        Some(what)
    }

    fn action(&mut self, at: &str, action_type: &str, value: &Json) -> Option<CountSource> {
        let Some(action_type) = self.words.vocabulary.action_type(action_type) else {
            self.say(at, format!("there is no action type `{}`", shown(action_type)));
            return None;
        };
        let mut of = None;
        for (level, codes) in AdLevel::ALL.into_iter().zip(self.words.entities) {
            let Some(ids) = value.get(level.name()) else { continue };
            let at = format!("{at}.{}", level.name());
            if of.is_some() {
                self.say(&at, "only one of ad, ad_group, campaign and advertiser is allowed");
            }
            of = Some((level, self.codes(&at, level, codes, ids)));
        }
        Some(CountSource::Action { action_type, of })
    }

    /// The codes of one id or of a list of ids.
    fn codes(&mut self, at: &str, level: AdLevel, codes: &BTreeMap<&str, u32>, ids: &Json) -> Vec<u32> {
        let ids = ids.as_array().map_or(std::slice::from_ref(ids), Vec::as_slice);
        if ids.is_empty() || ids.len() > limits::FILTER_LIST {
            self.say(at, format!("an array of 1 to {} ids is needed", limits::FILTER_LIST));
            return Vec::new();
        }
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            match (id.as_str(), id.as_str().and_then(|id| codes.get(id))) {
                (_, Some(code)) => found.push(*code),
                (Some(id), None) => self.say(at, format!("there is no {} `{}`", level.name(), shown(id))),
                (None, None) => self.say(at, format!("{} was given: an id is needed", kind_of(id))),
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Parses `{"$count": …, "within": …}`, for actions with at most one level and its ids.
    fn counted(&mut self, at: &str, what: Option<CountSource>, value: &Json, depth: usize) -> Vec<FilterNode> {
        let Some(object) = value.as_object() else {
            if self.takes_one() {
                self.say(at, format!("{} was given: an object with $count is needed", kind_of(value)));
            }
            return Vec::new();
        };
        let levels =
            if matches!(what, Some(CountSource::Action { .. })) { AdLevel::ALL.map(AdLevel::name) } else { [""; 4] };
        for key in object.keys().filter(|key| !matches!(key.as_str(), "$count" | "within")) {
            // Without a valid source, the allowed keys are unknown and are not checked.
            if what.is_some() && !levels.contains(&key.as_str()) {
                self.say(
                    &format!("{at}.{}", shown(key)),
                    "only $count, within and (for actions) one level are allowed here",
                );
                break;
            }
        }
        let within = self.window(at, what.as_ref(), object.get("within"));
        let Some(count) = object.get("$count") else {
            if self.takes_one() {
                self.say(at, "$count is needed");
            }
            return Vec::new();
        };
        let place = u32::try_from(self.counts.len()).unwrap_or(u32::MAX);
        if let Some(what) = what {
            self.counts.push(CountQuestion { what, within });
        }
        let operand = FieldOperand { field: FilterField::Count(place), name: "$count", sort: ValueSort::Count };
        self.operators(&format!("{at}.$count"), &operand, count, depth)
    }

    fn window(&mut self, at: &str, what: Option<&CountSource>, value: Option<&Json>) -> Option<TimeWindow> {
        let at = format!("{at}.within");
        let of_snapshot = self.words.answers == CountAnswerer::Snapshot;
        let is_action = matches!(what, Some(CountSource::Action { .. }));
        let days = if of_snapshot { limits::CAP_DAYS } else { limits::ACTION_DAYS };
        let needed = format!("1 or more minutes, hours or days, {days} days at most, are needed");
        match value.map(TimeWindow::deserialize) {
            Some(Ok(window)) if window.interval == 0 || window.minutes() > u32::from(days) * DAY_MINUTES => {
                self.say(&at, needed);
            }
            Some(Ok(window)) => return Some(window),
            Some(Err(_)) => self.say(&at, needed),
            None if of_snapshot && is_action => self.say(&at, needed),
            None => {}
        }
        None
    }
}

/// One value of a field.
enum FieldValue {
    Number(i64),
    Text(String),
}

impl From<FieldValue> for FieldTest {
    fn from(one: FieldValue) -> Self {
        match one {
            FieldValue::Number(number) => Self::Numbers(vec![number]),
            FieldValue::Text(text) => Self::Texts(vec![text]),
        }
    }
}

/// Beginning of a name, so that a problem message is shorter than the refused text.
fn shown(name: &str) -> &str {
    name.get(..name.floor_char_boundary(SHOWN)).unwrap_or_default()
}

fn kind_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a bool",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}
