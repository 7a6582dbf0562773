//! What filters ask of a person's history, and what is known of it.

use crate::actions::{Entity, Level, PackedActions, Verb, Window, tally};
use crate::profile::Totals;
use crate::time::Minute;

/// A question whose answer is a number: how often something happened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountQuestion {
    /// What.
    pub what: Counted,
    /// Within which time; `None` for ever, of actions for as long as they are kept.
    pub within: Option<Window>,
}

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// Pages viewed: `events.page`.
    Pages,
    /// Purchases: `events.purchase`.
    Purchases,
    /// Any other event that was tracked, by its name.
    Event(String),
    /// An action, each insertion once a UTC day.
    Action {
        /// What was done.
        verb: Verb,
        /// With which ads: at a level, one of these codes, in order, each once. `None` for all ads.
        of: Option<(Level, Vec<u32>)>,
    },
}

impl Counted {
    fn holds(&self, verb: Verb, entity: Entity) -> bool {
        match self {
            Self::Action { verb: asked, of } => {
                *asked == verb
                    && of.as_ref().is_none_or(|(level, codes)| codes.binary_search(&entity.at(*level)).is_ok())
            }
            _ => false,
        }
    }
}

/// What a snapshot keeps of a person's history.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    /// The sums over all time.
    pub totals: Totals,
    /// The actions of each visitor that counts; an insertion that several hold counts once.
    pub actions: &'a [PackedActions<'a>],
}

/// The answers in the order of the questions, `None` for what is not kept: other events than pages and purchases, and
/// when those were. One pass over the actions for each different window.
#[must_use]
pub fn answer(questions: &[CountQuestion], history: &History<'_>, now: Minute) -> Vec<Option<u64>> {
    let mut answers: Vec<Option<u64>> = questions.iter().map(|question| at_once(question, history)).collect();
    let mut windows: Vec<Option<Window>> = questions.iter().filter(|q| q.is_action()).map(|q| q.within).collect();
    windows.sort_unstable();
    windows.dedup();
    for within in windows {
        let (from, to) = within.map_or((Minute(0), Minute(u32::MAX)), |window| window.range(now));
        tally(history.actions, from, to, |verb, entity, count| {
            for (question, sum) in questions.iter().zip(&mut answers) {
                if question.within == within && question.what.holds(verb, entity) {
                    *sum = sum.map(|sum| sum + u64::from(count));
                }
            }
        });
    }
    answers
}

/// The answer, of actions before any is counted.
fn at_once(question: &CountQuestion, history: &History<'_>) -> Option<u64> {
    match (&question.what, question.within) {
        (Counted::Action { .. }, _) => Some(0),
        (Counted::Pages, None) => Some(history.totals.pages),
        (Counted::Purchases, None) => Some(history.totals.purchases),
        (Counted::Pages | Counted::Purchases | Counted::Event(_), _) => None,
    }
}

impl CountQuestion {
    fn is_action(&self) -> bool {
        matches!(self.what, Counted::Action { .. })
    }
}

/// The place of a question among all, which are in order and hold it.
pub(super) fn place(all: &[CountQuestion], question: Option<&CountQuestion>) -> u32 {
    let place = question.and_then(|question| all.binary_search(question).ok());
    place.and_then(|place| u32::try_from(place).ok()).unwrap_or(u32::MAX)
}
