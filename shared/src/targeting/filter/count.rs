//! Counts of a person's history that filters ask for, and the data that answers them.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::limits;
use crate::base::time::Minute;
use crate::facts::actions::{ActionType, AdLevel, PackedActions, TimeWindow, tally};
use crate::facts::events::{self, EventCount, VisitorEvents};
use crate::facts::fact::{PAGE, PURCHASE};
use crate::profiles::profile::{MissingParts, ProfileTotals};
use crate::profiles::view;

use super::Filter;

/// A count: how often something happened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountQuestion {
    /// The counted events.
    pub what: CountSource,
    /// Time window; `None` for all time (of actions: as long as they are stored).
    pub within: Option<TimeWindow>,
}

/// Kinds of counted events.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountSource {
    /// Page views: `events.page`.
    Pages,
    /// Purchases: `events.purchase`.
    Purchases,
    /// Any other tracked event, by its name.
    Event(String),
    /// Actions of a type; an insertion counts once per UTC day.
    Action {
        /// The action type.
        action_type: ActionType,
        /// The ads: one of these codes at a level, distinct and in order; `None` for all ads.
        of: Option<(AdLevel, Vec<u32>)>,
    },
}

/// The available history of a person.
#[derive(Debug, Clone, Copy)]
pub struct PersonHistory<'a> {
    /// Sums over all time.
    pub totals: ProfileTotals,
    /// Actions of each visitor that counts; an insertion that several visitors hold counts once.
    pub actions: &'a [PackedActions<'a>],
    /// Source for the times of events.
    pub events: EventEvidence<'a>,
    /// Parts that may be missing; counts of them are lower bounds.
    pub missing: MissingParts,
}

/// Source for the times of events.
#[derive(Debug, Clone, Copy)]
pub enum EventEvidence<'a> {
    /// No source.
    Nothing,
    /// Events by name of each visitor that counts, as the origin stores them.
    Events(&'a [&'a VisitorEvents]),
    /// Snapshots, which cover page views and purchases only.
    Snapshots(&'a view::PersonView<'a>),
}

impl Filter {
    /// Answers to [`Self::counts`], in order, as [`super::FilterSubject::counts`] expects them; `None` if no source
    /// covers the event.
    #[must_use]
    pub fn answers(&self, history: &PersonHistory<'_>, now: Minute) -> Vec<Option<EventCount>> {
        ByAction::of(&self.counts).answers(&self.counts, history, now)
    }
}

/// Message about filters that count too much together; `None` if they are within [`limits::TARGET_WINDOWS`] and
/// [`limits::TARGET_COUNTS`].
#[must_use]
pub fn counts_problem<'f>(filters: impl IntoIterator<Item = &'f Filter>) -> Option<String> {
    let questions: BTreeSet<&CountQuestion> = filters.into_iter().flat_map(Filter::counts).collect();
    let is_event = |question: &&&CountQuestion| !matches!(question.what, CountSource::Action { .. });
    let events = questions.iter().filter(is_event).filter(|question| question.within.is_some()).count();
    let ByAction(windows) = ByAction::of(questions);
    let keys: usize = windows.iter().map(|(_, keys)| keys.len()).sum();
    for (there, most, what) in [
        (events, limits::TARGET_WINDOWS, "windows in which pages or purchases are counted"),
        (windows.len(), limits::TARGET_WINDOWS, "windows in which actions are counted"),
        (keys, limits::TARGET_COUNTS, "counts of actions (each code of a list is one)"),
    ] {
        if there > most {
            return Some(format!("all targetings use {there} different {what}: at most {most} are allowed"));
        }
    }
    None
}

/// Questions about actions, arranged so that an action finds the questions that it counts for: by window, then by
/// action type with a level and a code (or neither, for all ads). The value is the question's index.
#[derive(Debug, Clone, Default)]
pub(super) struct ByAction(Vec<(Option<TimeWindow>, Keys)>);

type Keys = Vec<((ActionType, Option<(AdLevel, u32)>), usize)>;

impl ByAction {
    pub(super) fn of<'q>(questions: impl IntoIterator<Item = &'q CountQuestion>) -> Self {
        let mut windows: BTreeMap<Option<TimeWindow>, Keys> = BTreeMap::new();
        for (place, question) in questions.into_iter().enumerate() {
            let CountSource::Action { action_type, of } = &question.what else { continue };
            let keys = windows.entry(question.within).or_default();
            match of {
                None => keys.push(((*action_type, None), place)),
                Some((level, codes)) => {
                    keys.extend(codes.iter().map(|code| ((*action_type, Some((*level, *code))), place)))
                }
            }
        }
        windows.values_mut().for_each(|keys| keys.sort_unstable());
        Self(windows.into_iter().collect())
    }

    /// Answers in the order of the questions; `None` if no source covers the event. Each distinct window takes one pass
    /// over the actions.
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
            tally(history.actions, from, to, |action_type, entity, count| {
                let at_levels = AdLevel::ALL.into_iter().map(|level| Some((level, entity.at(level))));
                for of in at_levels.chain([None]) {
                    let first = keys.partition_point(|(key, _)| *key < (action_type, of));
                    let same = keys.get(first..).into_iter().flatten().take_while(|(key, _)| *key == (action_type, of));
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

/// The answer to a question; for actions, the initial value to which each action is added.
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

/// Index of a question in a sorted list that contains it.
pub(super) fn question_index(all: &[CountQuestion], question: Option<&CountQuestion>) -> u32 {
    let place = question.and_then(|question| all.binary_search(question).ok());
    place.and_then(|place| u32::try_from(place).ok()).unwrap_or(u32::MAX)
}
