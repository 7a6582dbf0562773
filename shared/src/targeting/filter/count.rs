//! What filters ask of a person's history, and what is known of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::limits;
use crate::base::time::Minute;
use crate::facts::actions::{ActionType, AdLevel, PackedActions, TimeWindow, tally};
use crate::facts::events::{self, EventCount, VisitorEvents};
use crate::facts::fact::{PAGE, PURCHASE};
use crate::profiles::profile::{MissingParts, ProfileTotals};
use crate::profiles::view;

use super::Filter;

/// A question whose answer is a number: how often something happened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountQuestion {
    /// What.
    pub what: CountSource,
    /// Within which time; `None` for ever, of actions for as long as they are kept.
    pub within: Option<TimeWindow>,
}

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountSource {
    /// Pages viewed: `events.page`.
    Pages,
    /// Purchases: `events.purchase`.
    Purchases,
    /// Any other event that was tracked, by its name.
    Event(String),
    /// An action, each insertion once a UTC day.
    Action {
        /// What was done.
        verb: ActionType,
        /// With which ads: at a level, one of these codes, in order, each once. `None` for all ads.
        of: Option<(AdLevel, Vec<u32>)>,
    },
}

/// What is kept of a person's history.
#[derive(Debug, Clone, Copy)]
pub struct PersonHistory<'a> {
    /// The sums over all time.
    pub totals: ProfileTotals,
    /// The actions of each visitor that counts; an insertion that several hold counts once.
    pub actions: &'a [PackedActions<'a>],
    /// When which events were.
    pub events: EventEvidence<'a>,
    /// What of all this may be missing: counts of it are lower bounds.
    pub missing: MissingParts,
}

/// What tells when events were.
#[derive(Debug, Clone, Copy)]
pub enum EventEvidence<'a> {
    /// Nothing does.
    Nothing,
    /// The events by name of each visitor that counts, as the origin keeps them.
    Events(&'a [&'a VisitorEvents]),
    /// What snapshots say, of pages and purchases alone.
    Snapshots(&'a view::PersonView<'a>),
}

impl Filter {
    /// The answers to [`Self::counts`], in their order, as [`super::Subject::counts`] wants them; `None` where nothing tells
    /// of an event.
    #[must_use]
    pub fn answers(&self, history: &PersonHistory<'_>, now: Minute) -> Vec<Option<EventCount>> {
        ByAction::of(&self.counts).answers(&self.counts, history, now)
    }
}

/// What is too much of what filters count together; `None` where it is within [`limits::TARGET_WINDOWS`] and
/// [`limits::TARGET_COUNTS`].
#[must_use]
pub fn counts_problem<'f>(filters: impl IntoIterator<Item = &'f Filter>) -> Option<String> {
    let asked: BTreeSet<&CountQuestion> = filters.into_iter().flat_map(Filter::counts).collect();
    let is_event = |question: &&&CountQuestion| !matches!(question.what, CountSource::Action { .. });
    let events = asked.iter().filter(is_event).filter(|question| question.within.is_some()).count();
    let ByAction(windows) = ByAction::of(asked);
    let keys: usize = windows.iter().map(|(_, keys)| keys.len()).sum();
    for (there, most, what) in [
        (events, limits::TARGET_WINDOWS, "windows in which pages or purchases are counted"),
        (windows.len(), limits::TARGET_WINDOWS, "windows in which actions are counted"),
        (keys, limits::TARGET_COUNTS, "counts of actions (each code of a list is one)"),
    ] {
        if there > most {
            return Some(format!("{most} different {what} at most, over all targetings; {there} are there"));
        }
    }
    None
}

/// Questions about actions by what they count, so that an action finds those it answers without asking each: by window a
/// verb with a level and a code, or with neither for all ads, and the question's place.
#[derive(Debug, Clone, Default)]
pub(super) struct ByAction(Vec<(Option<TimeWindow>, Keys)>);

type Keys = Vec<((ActionType, Option<(AdLevel, u32)>), usize)>;

impl ByAction {
    pub(super) fn of<'q>(questions: impl IntoIterator<Item = &'q CountQuestion>) -> Self {
        let mut windows: BTreeMap<Option<TimeWindow>, Keys> = BTreeMap::new();
        for (place, question) in questions.into_iter().enumerate() {
            let CountSource::Action { verb, of } = &question.what else { continue };
            let keys = windows.entry(question.within).or_default();
            match of {
                None => keys.push(((*verb, None), place)),
                Some((level, codes)) => keys.extend(codes.iter().map(|code| ((*verb, Some((*level, *code))), place))),
            }
        }
        windows.values_mut().for_each(|keys| keys.sort_unstable());
        Self(windows.into_iter().collect())
    }

    /// The answers in the order of the questions that it was made of, `None` where nothing tells of an event. One pass over the
    /// actions for each different window.
    pub(super) fn answers(
        &self,
        questions: &[CountQuestion],
        history: &PersonHistory<'_>,
        now: Minute,
    ) -> Vec<Option<EventCount>> {
        let mut answers: Vec<Option<EventCount>> =
            questions.iter().map(|question| at_once(question, history, now)).collect();
        for (within, keys) in &self.0 {
            let (from, to) = within.map_or((Minute(0), Minute(u32::MAX)), |window| window.range(now));
            tally(history.actions, from, to, |verb, entity, count| {
                let at_levels = AdLevel::ALL.into_iter().map(|level| Some((level, entity.at(level))));
                for of in at_levels.chain([None]) {
                    let first = keys.partition_point(|(key, _)| *key < (verb, of));
                    let same = keys.get(first..).into_iter().flatten().take_while(|(key, _)| *key == (verb, of));
                    for (_, place) in same {
                        let answer = answers.iter_mut().skip(*place).take(1).flatten();
                        answer.for_each(|sum| *sum = sum.plus(EventCount::Exactly(count.into())));
                    }
                }
            });
        }
        answers
    }
}

/// The answer, of actions before any is counted.
fn at_once(question: &CountQuestion, history: &PersonHistory<'_>, now: Minute) -> Option<EventCount> {
    let all_but = |missing: MissingParts, count| {
        Some(if history.missing.overlaps(missing) { EventCount::AtLeast(count) } else { EventCount::Exactly(count) })
    };
    let name = match (&question.what, question.within) {
        (CountSource::Action { .. }, _) => return all_but(MissingParts::ACTIONS.union(MissingParts::MEMBERS), 0),
        (CountSource::Pages, None) => return all_but(MissingParts::MEMBERS, history.totals.pages),
        (CountSource::Purchases, None) => return all_but(MissingParts::MEMBERS, history.totals.purchases),
        (CountSource::Pages, Some(_)) => PAGE,
        (CountSource::Purchases, Some(_)) => PURCHASE,
        (CountSource::Event(name), _) => name,
    };
    let range = question.within.map(|window| window.range(now));
    match (history.events, range) {
        (EventEvidence::Events(visitors), None) => Some(events::total(visitors, name)),
        (EventEvidence::Events(visitors), Some((from, to))) => Some(events::within(visitors, name, from, to)),
        (EventEvidence::Snapshots(counted), Some((from, to))) => counted.within(name, from, to),
        (EventEvidence::Snapshots(_), None) | (EventEvidence::Nothing, _) => None,
    }
}

/// The place of a question among all, which are in order and hold it.
pub(super) fn place(all: &[CountQuestion], question: Option<&CountQuestion>) -> u32 {
    let place = question.and_then(|question| all.binary_search(question).ok());
    place.and_then(|place| u32::try_from(place).ok()).unwrap_or(u32::MAX)
}
