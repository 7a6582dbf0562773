//! Filters, packed, as a catalogue carries them: the number of the form, then
//!
//! - the questions about counts: how many; of each 1 for pages, 2 for purchases, 3 for another event and its name, 4 for
//!   an action, its verb, and 0 for all ads or the level (1 to 4, from the ad up), how many codes, the first and the
//!   differences; then 0 for all time or the unit (1 to 3, from minutes up) and the interval;
//! - the conditions: 0 for all of, 1 for any of, with how many and the entries; or twice a field's code, plus one where
//!   the condition must not hold, with an attribute's token and the code of its kind, or a count's place; then 0 for
//!   *exists*, 1 and 2 for numbers and texts, how many and which – numbers as differences behind the first – , 3 and 4
//!   for *at least* and *at most* with the number, 5 to 8 for *after*, *at or after*, *before* and *at or before* with
//!   the text.
//!
//! Numbers are LEB128, those that may be negative with their sign in the lowest bit; texts stand behind their length.
//! Every filter has one form: what is in another order, or there twice, is refused.

use super::WireError;
use crate::actions::{Level, Unit, Verb, Window};
use crate::attributes::{Kind, Token};
use crate::filter::{Condition, CountQuestion, Counted, Field, Filter, Join, Node, Order, Test};
use crate::limits;
use crate::packed::{self, Packed};

const FORM: u64 = 1;
/// Groups inside each other: each level of a document may make an `any` and an `all`.
const DEPTH: usize = 2 * limits::FILTER_DEPTH;
/// Codes on the wire, by place, from 1 on.
const FIELDS: [Field; 12] = [
    Field::Segments,
    Field::Devices,
    Field::FirstSeen,
    Field::LastSeen,
    Field::Url,
    Field::Keywords,
    Field::ViewType,
    Field::Country,
    Field::Region,
    Field::Class,
    Field::Os,
    Field::Browser,
];
const ATTRIBUTE: u64 = 13;
const COUNT: u64 = 14;
const BEST_TIME: u64 = 15;
const ORDERS: [Order; 4] = [Order::After, Order::AtOrAfter, Order::Before, Order::AtOrBefore];

/// A filter's bytes.
#[must_use]
pub fn encode(filter: &Filter) -> Vec<u8> {
    let mut to = Vec::new();
    packed::put(&mut to, FORM);
    packed::put(&mut to, filter.counts.len() as u64);
    filter.counts.iter().for_each(|question| put_question(&mut to, question));
    put_node(&mut to, &filter.root);
    to
}

/// Reads a filter's bytes.
///
/// # Errors
/// [`WireError`]: what [`encode`] does not write of any filter within its bounds is refused.
pub fn decode(bytes: &[u8]) -> Result<Filter, WireError> {
    let mut from = Packed(bytes);
    if from.number().ok_or(WireError::Malformed)? != FORM {
        return Err(WireError::UnknownForm);
    }
    let mut reader = Reader { from, conditions: 0, counts: 0, text_bytes: 0 };
    let filter = reader.filter().ok_or(WireError::Malformed)?;
    if reader.from.is_empty() { Ok(filter) } else { Err(WireError::Malformed) }
}

/// The place of one of a list, from 1 on.
fn code<T: PartialEq>(all: &[T], one: &T) -> u64 {
    all.iter().position(|other| other == one).map_or(0, |place| place as u64 + 1)
}

fn put_question(to: &mut Vec<u8>, question: &CountQuestion) {
    match &question.what {
        Counted::Pages => packed::put(to, 1),
        Counted::Purchases => packed::put(to, 2),
        Counted::Event(name) => {
            packed::put(to, 3);
            packed::put_row(to, name.as_bytes());
        }
        Counted::Action { verb, of } => {
            packed::put(to, 4);
            packed::put(to, verb.0.into());
            match of {
                None => packed::put(to, 0),
                Some((level, codes)) => {
                    packed::put(to, code(&Level::ALL, level));
                    put_ascending(to, codes.iter().map(|code| i64::from(*code)));
                }
            }
        }
    }
    match question.within {
        None => packed::put(to, 0),
        Some(Window { interval, unit }) => {
            packed::put(to, code(&Unit::ALL, &unit));
            packed::put(to, interval.into());
        }
    }
}

/// How many, the first, and each as what it is above the one before.
fn put_ascending(to: &mut Vec<u8>, all: impl ExactSizeIterator<Item = i64>) {
    packed::put(to, all.len() as u64);
    let mut before = None;
    for number in all {
        match before {
            None => packed::put_signed(to, number),
            Some(before) => packed::put(to, number.wrapping_sub(before).cast_unsigned()),
        }
        before = Some(number);
    }
}

fn put_node(to: &mut Vec<u8>, node: &Node) {
    match node {
        Node::Leaf(condition) => put_condition(to, condition),
        Node::Group(join, nodes) => {
            packed::put(to, if *join == Join::All { 0 } else { 1 });
            packed::put(to, nodes.len() as u64);
            nodes.iter().for_each(|node| put_node(to, node));
        }
    }
}

fn put_condition(to: &mut Vec<u8>, condition: &Condition) {
    let Condition { field, negated, test } = condition;
    let of_field = match field {
        Field::Attribute(..) => ATTRIBUTE,
        Field::Count(_) => COUNT,
        Field::BestTime => BEST_TIME,
        field => code(&FIELDS, field),
    };
    packed::put(to, of_field * 2 + u64::from(*negated));
    match field {
        Field::Attribute(token, kind) => {
            packed::put(to, token.0.into());
            packed::put(to, kind.code().into());
        }
        Field::Count(at) => packed::put(to, (*at).into()),
        _ => {}
    }
    match test {
        Test::Exists => packed::put(to, 0),
        Test::Numbers(all) => {
            packed::put(to, 1);
            put_ascending(to, all.iter().copied());
        }
        Test::Texts(all) => {
            packed::put(to, 2);
            packed::put(to, all.len() as u64);
            all.iter().for_each(|text| packed::put_row(to, text.as_bytes()));
        }
        Test::AtLeast(number) => {
            packed::put(to, 3);
            packed::put_signed(to, *number);
        }
        Test::AtMost(number) => {
            packed::put(to, 4);
            packed::put_signed(to, *number);
        }
        Test::Text(order, text) => {
            packed::put(to, 4 + code(&ORDERS, order));
            packed::put_row(to, text.as_bytes());
        }
    }
}

/// What is read, and what it has taken of the bounds. Every part is `None` where the bytes are not of the form.
struct Reader<'a> {
    from: Packed<'a>,
    conditions: usize,
    counts: usize,
    text_bytes: usize,
}

impl Reader<'_> {
    fn filter(&mut self) -> Option<Filter> {
        self.counts = self.from.count(limits::FILTER_CONDITIONS)?;
        let counts = (0..self.counts).map(|_| self.question()).collect::<Option<Vec<_>>>()?;
        let root = self.node(DEPTH, None)?;
        ascend(&counts).then_some(Filter { counts, root })
    }

    fn question(&mut self) -> Option<CountQuestion> {
        let what = match self.from.number()? {
            1 => Counted::Pages,
            2 => Counted::Purchases,
            3 => Counted::Event(self.text(limits::NAME_BYTES)?),
            4 => {
                let verb = Verb(u8::try_from(self.from.number()?).ok()?);
                Counted::Action { verb, of: self.level()? }
            }
            _ => return None,
        };
        let unit = match self.from.count(Unit::ALL.len())?.checked_sub(1) {
            None => return Some(CountQuestion { what, within: None }),
            Some(unit) => *Unit::ALL.get(unit)?,
        };
        let interval = u32::try_from(self.from.number()?).ok().filter(|interval| *interval > 0)?;
        Some(CountQuestion { what, within: Some(Window { interval, unit }) })
    }

    fn level(&mut self) -> Option<Option<(Level, Vec<u32>)>> {
        let Some(level) = self.from.count(Level::ALL.len())?.checked_sub(1) else { return Some(None) };
        let codes = self.ascending()?.into_iter().map(|code| u32::try_from(code).ok());
        Some(Some((*Level::ALL.get(level)?, codes.collect::<Option<_>>()?)))
    }

    fn ascending(&mut self) -> Option<Vec<i64>> {
        let count = self.from.count(limits::FILTER_LIST).filter(|count| *count > 0)?;
        let mut all = vec![self.from.signed()?];
        let mut last = *all.first()?;
        for _ in 1..count {
            last = last.checked_add_unsigned(self.from.number().filter(|more| *more > 0)?)?;
            all.push(last);
        }
        Some(all)
    }

    fn text(&mut self, most: usize) -> Option<String> {
        let bytes = self.from.row().filter(|bytes| bytes.len() <= most)?;
        self.text_bytes += bytes.len();
        let text = std::str::from_utf8(bytes).ok().filter(|_| self.text_bytes <= limits::FILTER_TEXT_BYTES)?;
        Some(text.to_owned())
    }

    /// One node in a group of so many more levels; `of` is how the group around it goes together.
    fn node(&mut self, depth: usize, of: Option<Join>) -> Option<Node> {
        let join = match self.from.number()? {
            0 => Join::All,
            1 => Join::Any,
            field => return self.condition(field).map(Node::Leaf),
        };
        let count = self.from.count(limits::FILTER_CONDITIONS)?;
        if count == 0 {
            // The filter that means everybody.
            return (join == Join::All && of.is_none()).then(|| Node::Group(join, Vec::new()));
        }
        let depth = depth.checked_sub(1)?;
        let nodes = (0..count).map(|_| self.node(depth, Some(join))).collect::<Option<Vec<_>>>()?;
        (count > 1 && of != Some(join) && ascend(&nodes)).then_some(Node::Group(join, nodes))
    }

    fn condition(&mut self, field: u64) -> Option<Condition> {
        self.conditions += 1;
        let negated = field % 2 == 1;
        let field = match field / 2 {
            ATTRIBUTE => {
                let token = Token(u16::try_from(self.from.count(limits::ATTRIBUTE_NAMES)?).ok()?);
                Field::Attribute(token, Kind::from_code(u8::try_from(self.from.number()?).ok()?)?)
            }
            BEST_TIME => Field::BestTime,
            COUNT => Field::Count(u32::try_from(self.from.count(self.counts.checked_sub(1)?)?).ok()?),
            code => *FIELDS.get(usize::try_from(code).ok()?.checked_sub(1)?)?,
        };
        let test = self.test(field)?;
        let is_fit = match &test {
            Test::Exists => !matches!(field, Field::Count(_)),
            Test::Numbers(_) => !field.is_text(),
            Test::Texts(_) => field.is_text(),
            Test::AtLeast(_) | Test::AtMost(_) => !field.is_text() && field.is_ordered(),
            Test::Text(..) => field.is_text() && field.is_ordered(),
        };
        (is_fit && self.conditions <= limits::FILTER_CONDITIONS).then_some(Condition { field, negated, test })
    }

    fn test(&mut self, field: Field) -> Option<Test> {
        Some(match self.from.count(4 + ORDERS.len())? {
            0 => Test::Exists,
            1 => Test::Numbers(self.ascending()?),
            2 => {
                let count = self.from.count(limits::FILTER_LIST).filter(|count| *count > 0)?;
                let all = (0..count).map(|_| self.text(field.text_bytes())).collect::<Option<Vec<_>>>()?;
                Test::Texts(Some(all).filter(|all| ascend(all))?)
            }
            3 => Test::AtLeast(self.from.signed()?),
            4 => Test::AtMost(self.from.signed()?),
            order => Test::Text(*ORDERS.get(order.checked_sub(5)?)?, self.text(field.text_bytes())?),
        })
    }
}

/// Whether all are in order, each once.
fn ascend<T: Ord>(all: &[T]) -> bool {
    all.is_sorted_by(|one, next| one < next)
}
