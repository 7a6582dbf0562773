//! Filters in a catalogue. Equivalent filters have one form: values out of order or repeated are refused. Unknown keys
//! are refused too, because ignoring a part of a filter would show an ad to people that the filter excludes.

use serde::{Deserialize, Serialize};

use super::WireError;
use super::cbor::{self, FormBounds};
use super::parts::WindowForm;
use crate::base::limits;
use crate::facts::actions::{ActionType, AdLevel, TimeWindow};
use crate::facts::attributes::{NameToken, ValueKind};
use crate::targeting::filter::{
    CountQuestion, CountSource, FieldCondition, FieldTest, Filter, FilterField, FilterNode, GroupOperator, TextOrder,
};

const FORM: u8 = 1;
/// Nesting of groups: each level of a document may make an `any` and an `all`.
const DEPTH: usize = 2 * limits::FILTER_DEPTH;
/// A condition and a question have at most [`limits::FILTER_LIST`] values each: numbers of nine bytes, or texts with a
/// common bound. A group takes two levels, a condition four.
const FILTER: FormBounds = FormBounds {
    bytes: limits::FILTER_TEXT_BYTES + 2 * limits::FILTER_CONDITIONS * (9 * limits::FILTER_LIST + 256),
    items: 2 * limits::FILTER_CONDITIONS * (limits::FILTER_LIST + 64),
    levels: 2 * DEPTH + 6,
};

/// [`Filter`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "q", default, skip_serializing_if = "Vec::is_empty")]
    questions: Vec<CountQuestionForm>,
    #[serde(rename = "r")]
    root: NodeForm,
}

/// [`CountQuestion`]; without a window it counts all time.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CountQuestionForm {
    #[serde(rename = "c")]
    counted: CountedForm,
    #[serde(rename = "w", skip_serializing_if = "Option::is_none")]
    within: Option<WindowForm>,
}

/// [`CountSource`].
#[derive(Serialize, Deserialize)]
enum CountedForm {
    #[serde(rename = "p")]
    Pages,
    #[serde(rename = "b")]
    Purchases,
    #[serde(rename = "e")]
    Event(String),
    #[serde(rename = "a")]
    Action(ActionCountForm),
}

/// Actions; without `of`, the actions of all ads.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionCountForm {
    #[serde(rename = "v")]
    action_type: u8,
    #[serde(rename = "o", skip_serializing_if = "Option::is_none")]
    of: Option<CodesForm>,
}

/// Entities at one level of the catalogue.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CodesForm {
    /// The index in [`AdLevel::ALL`].
    #[serde(rename = "l")]
    level: u8,
    #[serde(rename = "c")]
    codes: Vec<u32>,
}

/// [`FilterNode`].
#[derive(Serialize, Deserialize)]
enum NodeForm {
    #[serde(rename = "c")]
    Condition(ConditionForm),
    #[serde(rename = "l")]
    All(Vec<NodeForm>),
    #[serde(rename = "y")]
    Any(Vec<NodeForm>),
}

/// [`FieldCondition`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConditionForm {
    #[serde(rename = "f")]
    field: FieldForm,
    #[serde(rename = "n", default, skip_serializing_if = "std::ops::Not::not")]
    negated: bool,
    #[serde(rename = "t")]
    test: TestForm,
}

/// [`FilterField`].
#[derive(Serialize, Deserialize)]
enum FieldForm {
    #[serde(rename = "a")]
    Attribute(AttributeTestForm),
    #[serde(rename = "s")]
    Segments,
    /// The index of a question.
    #[serde(rename = "n")]
    Count(u32),
    #[serde(rename = "d")]
    Devices,
    #[serde(rename = "f")]
    FirstSeen,
    #[serde(rename = "l")]
    LastSeen,
    #[serde(rename = "b")]
    BestSendTime,
    #[serde(rename = "u")]
    Url,
    #[serde(rename = "k")]
    Keywords,
    #[serde(rename = "v")]
    ViewType,
    #[serde(rename = "c")]
    Country,
    #[serde(rename = "r")]
    Region,
    #[serde(rename = "m")]
    Class,
    #[serde(rename = "o")]
    Os,
    #[serde(rename = "w")]
    Browser,
}

/// An attribute with the code of its kind.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttributeTestForm {
    #[serde(rename = "t")]
    token: u16,
    #[serde(rename = "k")]
    kind: u8,
}

/// [`FieldTest`].
#[derive(Serialize, Deserialize)]
enum TestForm {
    #[serde(rename = "e")]
    Exists,
    #[serde(rename = "n")]
    Numbers(Vec<i64>),
    #[serde(rename = "t")]
    Texts(Vec<String>),
    #[serde(rename = "g")]
    AtLeast(i64),
    #[serde(rename = "l")]
    AtMost(i64),
    #[serde(rename = "a")]
    After(String),
    #[serde(rename = "b")]
    AtOrAfter(String),
    #[serde(rename = "c")]
    Before(String),
    #[serde(rename = "d")]
    AtOrBefore(String),
}

/// Encodes a filter.
#[must_use]
pub fn encode_filter(filter: &Filter) -> Vec<u8> {
    let questions = filter.counts.iter().map(CountQuestionForm::from).collect();
    cbor::encode(&FilterForm { form: FORM, questions, root: (&filter.root).into() })
}

/// Decodes a filter.
///
/// # Errors
/// [`WireError`] for any bytes that [`encode_filter`] does not write for a filter within its bounds.
pub fn decode_filter(bytes: &[u8]) -> Result<Filter, WireError> {
    let form: FilterForm = cbor::decode(bytes, FORM, FILTER)?;
    let mut reader = FilterReader { conditions: 0, questions: form.questions.len(), text_bytes: 0 };
    reader.filter(form).ok_or(WireError::Range)
}

impl From<&CountQuestion> for CountQuestionForm {
    fn from(question: &CountQuestion) -> Self {
        let counted = match &question.what {
            CountSource::Pages => CountedForm::Pages,
            CountSource::Purchases => CountedForm::Purchases,
            CountSource::Event(name) => CountedForm::Event(name.clone()),
            CountSource::Action { action_type, of } => {
                let of = of.as_ref().map(|(level, codes)| CodesForm { level: *level as u8, codes: codes.clone() });
                CountedForm::Action(ActionCountForm { action_type: action_type.0, of })
            }
        };
        Self { counted, within: question.within.map(WindowForm::from) }
    }
}

impl From<&FilterNode> for NodeForm {
    fn from(node: &FilterNode) -> Self {
        match node {
            FilterNode::Leaf(FieldCondition { field, negated, test }) => {
                Self::Condition(ConditionForm { field: (*field).into(), negated: *negated, test: test.into() })
            }
            FilterNode::Group(GroupOperator::All, nodes) => Self::All(nodes.iter().map(Self::from).collect()),
            FilterNode::Group(GroupOperator::Any, nodes) => Self::Any(nodes.iter().map(Self::from).collect()),
        }
    }
}

impl From<FilterField> for FieldForm {
    fn from(field: FilterField) -> Self {
        match field {
            FilterField::Attribute(token, kind) => {
                Self::Attribute(AttributeTestForm { token: token.0, kind: kind.code() })
            }
            FilterField::Segments => Self::Segments,
            FilterField::Count(index) => Self::Count(index),
            FilterField::Devices => Self::Devices,
            FilterField::FirstSeen => Self::FirstSeen,
            FilterField::LastSeen => Self::LastSeen,
            FilterField::BestSendTime => Self::BestSendTime,
            FilterField::Url => Self::Url,
            FilterField::Keywords => Self::Keywords,
            FilterField::ViewType => Self::ViewType,
            FilterField::Country => Self::Country,
            FilterField::Region => Self::Region,
            FilterField::Class => Self::Class,
            FilterField::Os => Self::Os,
            FilterField::Browser => Self::Browser,
        }
    }
}

impl From<&FieldTest> for TestForm {
    fn from(test: &FieldTest) -> Self {
        match test {
            FieldTest::Exists => Self::Exists,
            FieldTest::Numbers(all) => Self::Numbers(all.clone()),
            FieldTest::Texts(all) => Self::Texts(all.clone()),
            FieldTest::AtLeast(number) => Self::AtLeast(*number),
            FieldTest::AtMost(number) => Self::AtMost(*number),
            FieldTest::Text(TextOrder::After, text) => Self::After(text.clone()),
            FieldTest::Text(TextOrder::AtOrAfter, text) => Self::AtOrAfter(text.clone()),
            FieldTest::Text(TextOrder::Before, text) => Self::Before(text.clone()),
            FieldTest::Text(TextOrder::AtOrBefore, text) => Self::AtOrBefore(text.clone()),
        }
    }
}

/// The part of the bounds that is used up while a filter is decoded. Methods return `None` for values out of bounds or
/// out of order.
struct FilterReader {
    conditions: usize,
    questions: usize,
    text_bytes: usize,
}

impl FilterReader {
    fn filter(&mut self, form: FilterForm) -> Option<Filter> {
        if form.questions.len() > limits::FILTER_CONDITIONS {
            return None;
        }
        let counts = form.questions.into_iter().map(|form| self.question(form)).collect::<Option<Vec<_>>>()?;
        let root = self.node(form.root, DEPTH, None)?;
        ascend(&counts).then_some(Filter { counts, root })
    }

    fn question(&mut self, form: CountQuestionForm) -> Option<CountQuestion> {
        let what = match form.counted {
            CountedForm::Pages => CountSource::Pages,
            CountedForm::Purchases => CountSource::Purchases,
            CountedForm::Event(name) => CountSource::Event(self.text(name, limits::NAME_BYTES)?),
            CountedForm::Action(ActionCountForm { action_type, of }) => {
                let of = match of {
                    Some(form) => Some(codes(form)?),
                    None => None,
                };
                CountSource::Action { action_type: ActionType(action_type), of }
            }
        };
        let Some(within) = form.within else { return Some(CountQuestion { what, within: None }) };
        let window = TimeWindow::try_from(within).ok()?;
        (window.interval > 0).then_some(CountQuestion { what, within: Some(window) })
    }

    fn text(&mut self, text: String, most: usize) -> Option<String> {
        self.text_bytes += text.len();
        (text.len() <= most && self.text_bytes <= limits::FILTER_TEXT_BYTES).then_some(text)
    }

    /// Decodes one node. `depth` is the number of levels left; `around` is the operator of the enclosing group.
    fn node(&mut self, form: NodeForm, depth: usize, around: Option<GroupOperator>) -> Option<FilterNode> {
        let (join, forms) = match form {
            NodeForm::Condition(form) => return self.condition(form).map(FilterNode::Leaf),
            NodeForm::All(forms) => (GroupOperator::All, forms),
            NodeForm::Any(forms) => (GroupOperator::Any, forms),
        };
        if forms.is_empty() {
            // The empty filter matches all people.
            return (join == GroupOperator::All && around.is_none()).then(|| FilterNode::Group(join, Vec::new()));
        }
        let depth = depth.checked_sub(1)?;
        let nodes = forms.into_iter().map(|form| self.node(form, depth, Some(join))).collect::<Option<Vec<_>>>()?;
        (nodes.len() > 1 && around != Some(join) && ascend(&nodes)).then_some(FilterNode::Group(join, nodes))
    }

    fn condition(&mut self, form: ConditionForm) -> Option<FieldCondition> {
        self.conditions += 1;
        let field = self.field(form.field)?;
        let test = self.test(form.test, field)?;
        let is_fit = match &test {
            FieldTest::Exists => !matches!(field, FilterField::Count(_)),
            FieldTest::Numbers(_) => !field.is_text(),
            FieldTest::Texts(_) => field.is_text(),
            FieldTest::AtLeast(_) | FieldTest::AtMost(_) => !field.is_text() && field.is_ordered(),
            FieldTest::Text(..) => field.is_text() && field.is_ordered(),
        };
        let negated = form.negated;
        (is_fit && self.conditions <= limits::FILTER_CONDITIONS).then_some(FieldCondition { field, negated, test })
    }

    fn field(&self, form: FieldForm) -> Option<FilterField> {
        Some(match form {
            FieldForm::Attribute(AttributeTestForm { token, kind }) => {
                let kind = ValueKind::from_code(kind)?;
                return (usize::from(token) <= limits::ATTRIBUTE_NAMES)
                    .then_some(FilterField::Attribute(NameToken(token), kind));
            }
            FieldForm::Count(index) => return ((index as usize) < self.questions).then_some(FilterField::Count(index)),
            FieldForm::Segments => FilterField::Segments,
            FieldForm::Devices => FilterField::Devices,
            FieldForm::FirstSeen => FilterField::FirstSeen,
            FieldForm::LastSeen => FilterField::LastSeen,
            FieldForm::BestSendTime => FilterField::BestSendTime,
            FieldForm::Url => FilterField::Url,
            FieldForm::Keywords => FilterField::Keywords,
            FieldForm::ViewType => FilterField::ViewType,
            FieldForm::Country => FilterField::Country,
            FieldForm::Region => FilterField::Region,
            FieldForm::Class => FilterField::Class,
            FieldForm::Os => FilterField::Os,
            FieldForm::Browser => FilterField::Browser,
        })
    }

    fn test(&mut self, form: TestForm, field: FilterField) -> Option<FieldTest> {
        let most = field.text_bytes();
        let (order, text) = match form {
            TestForm::Exists => return Some(FieldTest::Exists),
            TestForm::Numbers(all) => return is_list(&all).then_some(FieldTest::Numbers(all)),
            TestForm::Texts(all) => {
                let all = all.into_iter().map(|text| self.text(text, most)).collect::<Option<Vec<_>>>()?;
                return is_list(&all).then_some(FieldTest::Texts(all));
            }
            TestForm::AtLeast(number) => return Some(FieldTest::AtLeast(number)),
            TestForm::AtMost(number) => return Some(FieldTest::AtMost(number)),
            TestForm::After(text) => (TextOrder::After, text),
            TestForm::AtOrAfter(text) => (TextOrder::AtOrAfter, text),
            TestForm::Before(text) => (TextOrder::Before, text),
            TestForm::AtOrBefore(text) => (TextOrder::AtOrBefore, text),
        };
        Some(FieldTest::Text(order, self.text(text, most)?))
    }
}

fn codes(CodesForm { level, codes }: CodesForm) -> Option<(AdLevel, Vec<u32>)> {
    let level = *AdLevel::ALL.get(usize::from(level))?;
    is_list(&codes).then_some((level, codes))
}

/// Whether a list is not empty, within its bound, and ascending without repetitions.
fn is_list<T: Ord>(all: &[T]) -> bool {
    (1..=limits::FILTER_LIST).contains(&all.len()) && ascend(all)
}

/// Whether the values ascend without repetitions.
fn ascend<T: Ord>(all: &[T]) -> bool {
    all.is_sorted_by(|one, next| one < next)
}
