//! Checks of a catalogue's rows; each problem names its path.

use crate::base::ids::Micros;
use std::collections::BTreeSet;

use super::{Ad, Campaign, CapMode, CapRule, Row};
use crate::base::problems::ProblemList;
use crate::base::time::DAY_MINUTES;
use crate::base::{limits, moment};
use crate::settings::config::{LANDING, is_landing};
use crate::settings::vocabulary::Vocabulary;

/// Checks rows of one level and returns their ids, to which their children refer.
pub(super) fn rows_problems<'a>(
    rows: &[Row<'a>],
    parents: &BTreeSet<&'a str>,
    at: &str,
    words: &Vocabulary,
    found: &mut ProblemList,
) -> BTreeSet<&'a str> {
    let (mut ids, mut codes) = (BTreeSet::new(), BTreeSet::new());
    for (i, row) in rows.iter().enumerate() {
        let here = format!("{at}[{i}]");
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
        if row.id.is_empty() || row.id.len() > limits::CATALOGUE_ID_BYTES || !row.id.bytes().all(fits) {
            let most = limits::CATALOGUE_ID_BYTES;
            found.say(format!("{here}.id"), format!("1 to {most} of a-z, 0-9, - and _ are needed"));
        }
        if !ids.insert(row.id.as_str()) {
            found.say(format!("{here}.id"), format!("`{}` is there already", row.id));
        }
        if row.code == 0 || !codes.insert(row.code) {
            found.say(format!("{here}.code"), "a number of 1 or more that no other entry of the list has is needed");
        }
        if let Some((sort, parent)) = row.parent.filter(|(_, parent)| !parents.contains(parent.as_str())) {
            found.say(format!("{here}.{sort}"), format!("there is no {sort} `{parent}`"));
        }
        if row.caps.len() > limits::CAPS {
            found.say(format!("{here}.caps"), format!("{} caps at most", limits::CAPS));
        }
        for (j, cap) in row.caps.iter().enumerate().take(limits::CAPS) {
            cap.problems(&format!("{here}.caps[{j}]"), words, found);
        }
    }
    ids
}

impl Campaign {
    pub(super) fn problems(&self, at: &str, found: &mut ProblemList) {
        let mut read = |field: &str, text: Option<&String>| {
            let parsed = text.map(|text| moment::parse(text));
            if parsed == Some(None) {
                found.say(format!("{at}.{field}"), moment::NEEDED);
            }
            parsed.flatten()
        };
        let (starts, ends) = (read("starts", self.starts.as_ref()), read("ends", self.ends.as_ref()));
        if starts.zip(ends).is_some_and(|(starts, ends)| starts >= ends) {
            found.say(format!("{at}.ends"), "a time after `starts` is needed");
        }
        if self.bid.is_some_and(|bid| !bid.is_within()) {
            let most = limits::BID_MICROS;
            found.say(format!("{at}.bid"), format!("0 to {most} micros, or 0 to 1000000 millionths, are needed"));
        }
        for (field, budget) in
            [("budget_micros", self.budget_micros), ("daily_budget_micros", self.daily_budget_micros)]
        {
            if budget.is_some_and(|budget| !(Micros::new(1)..=limits::BUDGET_MICROS).contains(&budget)) {
                found.say(format!("{at}.{field}"), format!("1 to {} micros are needed", limits::BUDGET_MICROS));
            }
        }
        if self.recipients.is_some_and(|recipients| !recipients.is_within()) {
            let most = limits::RECIPIENTS;
            found.say(
                format!("{at}.recipients"),
                format!("a limit of 1 to {most} and a share of 1 to 10000 are needed"),
            );
        }
        if self.categories.len() > limits::CATEGORIES
            || self.categories.iter().any(|name| name.is_empty() || name.len() > limits::CATALOGUE_ID_BYTES)
        {
            let (most, long) = (limits::CATEGORIES, limits::CATALOGUE_ID_BYTES);
            found.say(format!("{at}.categories"), format!("at most {most} categories of 1 to {long} bytes each"));
        }
        if self.roadblock && self.cap_mode == CapMode::Strict {
            found.say(format!("{at}.roadblock"), "a campaign under strict caps cannot fill a page at once");
        }
    }
}

impl CapRule {
    fn problems(&self, at: &str, words: &Vocabulary, found: &mut ProblemList) {
        if words.action_type(&self.action).is_none() {
            found.say(format!("{at}.action"), format!("there is no action type `{}`", self.action));
        }
        if self.limit == 0 || self.limit > limits::CAP_LIMIT {
            found.say(format!("{at}.limit"), format!("a number from 1 to {} is needed", limits::CAP_LIMIT));
        }
        if self.window.interval == 0 || self.window.minutes() > u32::from(limits::CAP_DAYS) * DAY_MINUTES {
            found.say(
                format!("{at}.window"),
                format!("1 or more buckets, and at most {} days, are needed", limits::CAP_DAYS),
            );
        }
    }
}

impl Ad {
    pub(super) fn problems(&self, at: &str, found: &mut ProblemList) {
        if self.creative.to_string().len() > limits::CREATIVE_BYTES {
            found.say(format!("{at}.creative"), format!("{} bytes of JSON at most", limits::CREATIVE_BYTES));
        }
        if !is_landing(&self.landing) {
            found.say(format!("{at}.landing"), LANDING);
        }
        if self.sizes.len() > limits::SIZES || self.sizes.iter().flatten().any(|side| *side == 0) {
            found.say(format!("{at}.sizes"), format!("{} sizes at most, width and height 1 or more", limits::SIZES));
        }
        if self.weight > limits::WEIGHT {
            found.say(format!("{at}.weight"), format!("{} at most", limits::WEIGHT));
        }
    }
}
