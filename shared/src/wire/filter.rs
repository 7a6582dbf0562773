//! Filters, as a catalogue carries them. Two filters that say the same have the same form: what is in another order, or
//! there twice, is refused. So is every key that this release does not know: to leave out a part of a filter would show an
//! ad to people whom it is not meant for.

use serde::{Deserialize, Serialize};

use super::WireError;
use super::cbor::{self, FormBounds};
use super::parts::WindowForm;
use crate::actions::{Level, Verb, Window};
use crate::attributes::{Kind, Token};
use crate::filter::{Condition, CountQuestion, Counted, Field, Filter, Join, Node, Order, Test};
use crate::limits;

const FORM: u8 = 1;
/// Groups inside each other: each level of a document may make an `any` and an `all`.
const DEPTH: usize = 2 * limits::FILTER_DEPTH;
/// A condition and a question have at most [`limits::FILTER_LIST`] values each, of nine bytes, or texts that all together
/// have a bound. A group is two levels, a condition four.
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
    questions: Vec<QuestionForm>,
    #[serde(rename = "r")]
    root: NodeForm,
}

/// [`CountQuestion`]; without a window it is about all time.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionForm {
    #[serde(rename = "c")]
    counted: CountedForm,
    #[serde(rename = "w", skip_serializing_if = "Option::is_none")]
    within: Option<WindowForm>,
}

/// [`Counted`].
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

/// Actions; without a level of all ads.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionCountForm {
    #[serde(rename = "v")]
    verb: u8,
    #[serde(rename = "o", skip_serializing_if = "Option::is_none")]
    of: Option<CodesForm>,
}

/// Ads, or what they belong to.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CodesForm {
    /// The place in [`Level::ALL`].
    #[serde(rename = "l")]
    level: u8,
    #[serde(rename = "c")]
    codes: Vec<u32>,
}

/// [`Node`].
#[derive(Serialize, Deserialize)]
enum NodeForm {
    #[serde(rename = "c")]
    Condition(ConditionForm),
    #[serde(rename = "l")]
    All(Vec<NodeForm>),
    #[serde(rename = "y")]
    Any(Vec<NodeForm>),
}

/// [`Condition`].
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

/// [`Field`].
#[derive(Serialize, Deserialize)]
enum FieldForm {
    #[serde(rename = "a")]
    Attribute(AttributeForm),
    #[serde(rename = "s")]
    Segments,
    /// The place of a question.
    #[serde(rename = "n")]
    Count(u32),
    #[serde(rename = "d")]
    Devices,
    #[serde(rename = "f")]
    FirstSeen,
    #[serde(rename = "l")]
    LastSeen,
    #[serde(rename = "b")]
    BestTime,
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

/// An attribute, and its kind by its code.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttributeForm {
    #[serde(rename = "t")]
    token: u16,
    #[serde(rename = "k")]
    kind: u8,
}

/// [`Test`].
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

/// A filter's bytes.
#[must_use]
pub fn encode(filter: &Filter) -> Vec<u8> {
    let questions = filter.counts.iter().map(QuestionForm::from).collect();
    cbor::encode(&FilterForm { form: FORM, questions, root: (&filter.root).into() })
}

/// Reads a filter's bytes.
///
/// # Errors
/// [`WireError`]: what [`encode`] does not write of any filter within its bounds is refused.
pub fn decode(bytes: &[u8]) -> Result<Filter, WireError> {
    let form: FilterForm = cbor::decode(bytes, FORM, FILTER)?;
    let mut reader = Reader { conditions: 0, questions: form.questions.len(), text_bytes: 0 };
    reader.filter(form).ok_or(WireError::Range)
}

impl From<&CountQuestion> for QuestionForm {
    fn from(question: &CountQuestion) -> Self {
        let counted = match &question.what {
            Counted::Pages => CountedForm::Pages,
            Counted::Purchases => CountedForm::Purchases,
            Counted::Event(name) => CountedForm::Event(name.clone()),
            Counted::Action { verb, of } => {
                let of = of.as_ref().map(|(level, codes)| CodesForm { level: *level as u8, codes: codes.clone() });
                CountedForm::Action(ActionCountForm { verb: verb.0, of })
            }
        };
        Self { counted, within: question.within.map(WindowForm::from) }
    }
}

impl From<&Node> for NodeForm {
    fn from(node: &Node) -> Self {
        match node {
            Node::Leaf(Condition { field, negated, test }) => {
                Self::Condition(ConditionForm { field: (*field).into(), negated: *negated, test: test.into() })
            }
            Node::Group(Join::All, nodes) => Self::All(nodes.iter().map(Self::from).collect()),
            Node::Group(Join::Any, nodes) => Self::Any(nodes.iter().map(Self::from).collect()),
        }
    }
}

impl From<Field> for FieldForm {
    fn from(field: Field) -> Self {
        match field {
            Field::Attribute(token, kind) => Self::Attribute(AttributeForm { token: token.0, kind: kind.code() }),
            Field::Segments => Self::Segments,
            Field::Count(place) => Self::Count(place),
            Field::Devices => Self::Devices,
            Field::FirstSeen => Self::FirstSeen,
            Field::LastSeen => Self::LastSeen,
            Field::BestTime => Self::BestTime,
            Field::Url => Self::Url,
            Field::Keywords => Self::Keywords,
            Field::ViewType => Self::ViewType,
            Field::Country => Self::Country,
            Field::Region => Self::Region,
            Field::Class => Self::Class,
            Field::Os => Self::Os,
            Field::Browser => Self::Browser,
        }
    }
}

impl From<&Test> for TestForm {
    fn from(test: &Test) -> Self {
        match test {
            Test::Exists => Self::Exists,
            Test::Numbers(all) => Self::Numbers(all.clone()),
            Test::Texts(all) => Self::Texts(all.clone()),
            Test::AtLeast(number) => Self::AtLeast(*number),
            Test::AtMost(number) => Self::AtMost(*number),
            Test::Text(Order::After, text) => Self::After(text.clone()),
            Test::Text(Order::AtOrAfter, text) => Self::AtOrAfter(text.clone()),
            Test::Text(Order::Before, text) => Self::Before(text.clone()),
            Test::Text(Order::AtOrBefore, text) => Self::AtOrBefore(text.clone()),
        }
    }
}

/// What was read of a filter has taken of its bounds. Every part is `None` where it is out of its bounds or its order.
struct Reader {
    conditions: usize,
    questions: usize,
    text_bytes: usize,
}

impl Reader {
    fn filter(&mut self, form: FilterForm) -> Option<Filter> {
        if form.questions.len() > limits::FILTER_CONDITIONS {
            return None;
        }
        let counts = form.questions.into_iter().map(|form| self.question(form)).collect::<Option<Vec<_>>>()?;
        let root = self.node(form.root, DEPTH, None)?;
        ascend(&counts).then_some(Filter { counts, root })
    }

    fn question(&mut self, form: QuestionForm) -> Option<CountQuestion> {
        let what = match form.counted {
            CountedForm::Pages => Counted::Pages,
            CountedForm::Purchases => Counted::Purchases,
            CountedForm::Event(name) => Counted::Event(self.text(name, limits::NAME_BYTES)?),
            CountedForm::Action(ActionCountForm { verb, of }) => {
                let of = match of {
                    Some(form) => Some(codes(form)?),
                    None => None,
                };
                Counted::Action { verb: Verb(verb), of }
            }
        };
        let Some(within) = form.within else { return Some(CountQuestion { what, within: None }) };
        let window = Window::try_from(within).ok()?;
        (window.interval > 0).then_some(CountQuestion { what, within: Some(window) })
    }

    fn text(&mut self, text: String, most: usize) -> Option<String> {
        self.text_bytes += text.len();
        (text.len() <= most && self.text_bytes <= limits::FILTER_TEXT_BYTES).then_some(text)
    }

    /// One node in a group of so many more levels; `around` is how the group around it goes together.
    fn node(&mut self, form: NodeForm, depth: usize, around: Option<Join>) -> Option<Node> {
        let (join, forms) = match form {
            NodeForm::Condition(form) => return self.condition(form).map(Node::Leaf),
            NodeForm::All(forms) => (Join::All, forms),
            NodeForm::Any(forms) => (Join::Any, forms),
        };
        if forms.is_empty() {
            // The filter that means everybody.
            return (join == Join::All && around.is_none()).then(|| Node::Group(join, Vec::new()));
        }
        let depth = depth.checked_sub(1)?;
        let nodes = forms.into_iter().map(|form| self.node(form, depth, Some(join))).collect::<Option<Vec<_>>>()?;
        (nodes.len() > 1 && around != Some(join) && ascend(&nodes)).then_some(Node::Group(join, nodes))
    }

    fn condition(&mut self, form: ConditionForm) -> Option<Condition> {
        self.conditions += 1;
        let field = self.field(form.field)?;
        let test = self.test(form.test, field)?;
        let is_fit = match &test {
            Test::Exists => !matches!(field, Field::Count(_)),
            Test::Numbers(_) => !field.is_text(),
            Test::Texts(_) => field.is_text(),
            Test::AtLeast(_) | Test::AtMost(_) => !field.is_text() && field.is_ordered(),
            Test::Text(..) => field.is_text() && field.is_ordered(),
        };
        let negated = form.negated;
        (is_fit && self.conditions <= limits::FILTER_CONDITIONS).then_some(Condition { field, negated, test })
    }

    fn field(&self, form: FieldForm) -> Option<Field> {
        Some(match form {
            FieldForm::Attribute(AttributeForm { token, kind }) => {
                let kind = Kind::from_code(kind)?;
                return (usize::from(token) <= limits::ATTRIBUTE_NAMES).then_some(Field::Attribute(Token(token), kind));
            }
            FieldForm::Count(place) => return ((place as usize) < self.questions).then_some(Field::Count(place)),
            FieldForm::Segments => Field::Segments,
            FieldForm::Devices => Field::Devices,
            FieldForm::FirstSeen => Field::FirstSeen,
            FieldForm::LastSeen => Field::LastSeen,
            FieldForm::BestTime => Field::BestTime,
            FieldForm::Url => Field::Url,
            FieldForm::Keywords => Field::Keywords,
            FieldForm::ViewType => Field::ViewType,
            FieldForm::Country => Field::Country,
            FieldForm::Region => Field::Region,
            FieldForm::Class => Field::Class,
            FieldForm::Os => Field::Os,
            FieldForm::Browser => Field::Browser,
        })
    }

    fn test(&mut self, form: TestForm, field: Field) -> Option<Test> {
        let most = field.text_bytes();
        let (order, text) = match form {
            TestForm::Exists => return Some(Test::Exists),
            TestForm::Numbers(all) => return is_list(&all).then_some(Test::Numbers(all)),
            TestForm::Texts(all) => {
                let all = all.into_iter().map(|text| self.text(text, most)).collect::<Option<Vec<_>>>()?;
                return is_list(&all).then_some(Test::Texts(all));
            }
            TestForm::AtLeast(number) => return Some(Test::AtLeast(number)),
            TestForm::AtMost(number) => return Some(Test::AtMost(number)),
            TestForm::After(text) => (Order::After, text),
            TestForm::AtOrAfter(text) => (Order::AtOrAfter, text),
            TestForm::Before(text) => (Order::Before, text),
            TestForm::AtOrBefore(text) => (Order::AtOrBefore, text),
        };
        Some(Test::Text(order, self.text(text, most)?))
    }
}

fn codes(CodesForm { level, codes }: CodesForm) -> Option<(Level, Vec<u32>)> {
    let level = *Level::ALL.get(usize::from(level))?;
    is_list(&codes).then_some((level, codes))
}

/// Whether a list has values, not too many, in order, each once.
fn is_list<T: Ord>(all: &[T]) -> bool {
    (1..=limits::FILTER_LIST).contains(&all.len()) && ascend(all)
}

/// Whether all are in order, each once.
fn ascend<T: Ord>(all: &[T]) -> bool {
    all.is_sorted_by(|one, next| one < next)
}
