//! Experiments (S4.6): which arm of a test a person is in, and what keeps it there.
//!
//! An arm is drawn from the person's random value for this experiment ([`BucketPurpose::Experiment`]), never from the one for
//! sampling. What makes an arm stick is not the draw but the exposure, a fact of the visitor ([`Exposures`]): who has one
//! keeps its arm, whatever the shares are by then and whoever it turns out to be at a login. What an arm changes on a page
//! is the catalogue's: campaigns, ad groups and ads that only people of the arm see.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::base::bucket::{BUCKETS, BucketPurpose, PersonRandom};
use crate::base::ids::Millis;
use crate::base::limits;
use crate::base::moment;
use crate::base::planted::{self, PlantedBug};
use crate::base::problems::ProblemList;
use crate::facts::actions::ActionType;
use crate::facts::exposures::Exposures;
use crate::facts::fact::PURCHASE;
use crate::settings::vocabulary::Vocabulary;

/// A test of arms against one another. Its code is for ever: append-only, never reused; so are those of its arms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name: 1 to 64 of `a-z`, `0-9`, `-`, `_`. People's arms are drawn by it: another name is another draw.
    pub id: String,
    /// Its code, 1 or more, greater than those of all experiments before it; no other experiment ever has it.
    pub code: u32,
    /// What is tested: 1 to [`limits::EXPERIMENT_ARMS`].
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
    /// What counts as a conversion: the name of an event, or a verb of the vocabulary other than `impression`. Not to be
    /// changed while the experiment runs. Default `purchase`.
    #[serde(default = "purchase")]
    pub conversion: String,
    /// Whether the origin shifts traffic to the arms that convert best; the control's share and the sum of the others stay.
    /// Default: every arm keeps its share.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub selection: bool,
    /// When it begins: a date and time with its offset (RFC 3339), or milliseconds since the Unix epoch.
    #[serde(deserialize_with = "moment::millis")]
    pub starts: Millis,
    /// When it ends, in either form. Default: when it is taken out of the file.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "moment::optional_millis")]
    pub ends: Option<Millis>,
}

/// One of the ways that are tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Its name: 1 to 64 of `a-z`, `0-9`, `-`, `_`.
    pub id: String,
    /// Its code, 1 to 255; no other arm of the experiment ever has it.
    pub code: u8,
    /// How many of 10,000 people are in it. All shares are 10,000 at most; the rest is outside the experiment.
    pub share: u32,
    /// Whether the others are measured against it; one at most.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control: bool,
}

fn purchase() -> String {
    PURCHASE.to_owned()
}

impl Experiment {
    /// Whether people are exposed at this time: from `starts` to before `ends`.
    #[must_use]
    pub fn runs(&self, now: Millis) -> bool {
        self.starts <= now && self.ends.is_none_or(|ends| now < ends)
    }

    /// The arm that a person is drawn into; `None` for outside. An exposure on record wins over the draw.
    ///
    /// `shares` are of 10,000, one an arm in the order of their codes, as the origin's selection last gave them; where there
    /// are not as many, those of the file hold. The control's buckets come first, so that a change of the other shares moves
    /// nobody into the control or out of it.
    #[must_use]
    pub fn arm(&self, random: &PersonRandom, shares: &[u32]) -> Option<&Arm> {
        let place = |of: &Arm| self.arms.iter().filter(|arm| arm.code < of.code).count();
        let given = |arm: &Arm| shares.get(place(arm)).filter(|_| shares.len() == self.arms.len());
        let bucket = u64::from(random.bucket(BucketPurpose::Experiment(&self.id)));
        let arms = || self.arms.iter().map(|arm| (arm, given(arm).copied().unwrap_or(arm.share)));
        let in_order = arms().filter(|(arm, _)| arm.control).chain(arms().filter(|(arm, _)| !arm.control));
        let mut end = 0;
        in_order.into_iter().find_map(|(arm, share)| {
            end += u64::from(share);
            (bucket < end).then_some(arm)
        })
    }

    /// The arm of a code.
    #[must_use]
    pub fn arm_of(&self, code: u8) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.code == code)
    }

    fn problems(&self, at: &str, words: &Vocabulary, found: &mut ProblemList) {
        if !is_id(&self.id) {
            found.say(format!("{at}.id"), ID.to_string());
        }
        if self.code == 0 {
            found.say(format!("{at}.code"), "a number from 1 that no other of its sort has is needed");
        }
        if self.arms.is_empty() || self.arms.len() > limits::EXPERIMENT_ARMS {
            found.say(format!("{at}.arm"), format!("1 to {} arms are needed", limits::EXPERIMENT_ARMS));
        }
        let (mut ids, mut codes) = (BTreeSet::new(), BTreeSet::new());
        for (i, arm) in self.arms.iter().enumerate().take(limits::EXPERIMENT_ARMS) {
            let here = format!("{at}.arm[{i}]");
            if !is_id(&arm.id) || !ids.insert(&arm.id) {
                found.say(format!("{here}.id"), format!("{ID}, that no other arm has"));
            }
            if arm.code == 0 || !codes.insert(arm.code) {
                found.say(format!("{here}.code"), "a number from 1 to 255 that no other arm has is needed");
            }
        }
        if self.arms.iter().map(|arm| u64::from(arm.share)).sum::<u64>() > u64::from(BUCKETS) {
            found.say(format!("{at}.arm"), format!("the shares are {BUCKETS} together at most"));
        }
        if self.arms.iter().filter(|arm| arm.control).count() > 1 {
            found.say(format!("{at}.arm"), "one control at most");
        }
        let length = 1..=limits::NAME_BYTES;
        if !length.contains(&self.conversion.len()) || words.verb(&self.conversion) == Some(ActionType::IMPRESSION) {
            found.say(format!("{at}.conversion"), "the name of an event or a verb, other than `impression`, is needed");
        }
        if self.ends.is_some_and(|ends| ends <= self.starts) {
            found.say(format!("{at}.ends"), "a time after `starts` is needed");
        }
    }
}

/// The arm that `experiment/arm` names: the experiment's place and the arm.
#[must_use]
pub fn arm_named<'e>(experiments: &'e [Experiment], name: &str) -> Option<(usize, &'e Arm)> {
    let (of, arm) = name.split_once('/')?;
    let (place, experiment) = experiments.iter().enumerate().find(|(_, experiment)| experiment.id == of)?;
    Some((place, experiment.arms.iter().find(|known| known.id == arm)?))
}

/// Shares that the origin's selection gave, by the experiment's code: of 10,000, one an arm in the order of their codes, which
/// stays when the file lists them in another.
pub type Shares = BTreeMap<u32, Vec<u32>>;

/// The code of the arm that a person is in, of each experiment in their order: the one it was exposed to first, else the one
/// it is drawn into. `None` for outside, and for an experiment that does not run.
#[must_use]
pub fn arms(
    experiments: &[Experiment],
    exposures: &Exposures,
    random: &PersonRandom,
    shares: &Shares,
    now: Millis,
) -> Vec<Option<u8>> {
    let none = Vec::new();
    let each = experiments.iter().map(|experiment| {
        let drawn = || experiment.arm(random, shares.get(&experiment.code).unwrap_or(&none)).map(|arm| arm.code);
        let seen = exposures.get(experiment.code).map(|exposure| exposure.arm);
        let seen = seen.filter(|_| !planted::is_active(PlantedBug::DrawAnArmAnew));
        if experiment.runs(now) { seen.or_else(drawn) } else { None }
    });
    each.collect()
}

const ID: &str = "1 to 64 of a-z, 0-9, - and _ are needed";

fn is_id(id: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    (1..=limits::CATALOGUE_ID_BYTES).contains(&id.len()) && id.bytes().all(fits)
}

/// Everything wrong with a tenant's experiments; `at` is where they stand.
pub(crate) fn problems(experiments: &[Experiment], at: &str, words: &Vocabulary, found: &mut ProblemList) {
    if experiments.len() > limits::EXPERIMENTS {
        found.say(at, format!("{} at most", limits::EXPERIMENTS));
    }
    let (mut ids, mut codes) = (BTreeSet::new(), BTreeSet::new());
    for (i, experiment) in experiments.iter().enumerate().take(limits::EXPERIMENTS) {
        let here = format!("{at}[{i}]");
        experiment.problems(&here, words, found);
        if !ids.insert(&experiment.id) {
            found.say(format!("{here}.id"), format!("`{}` is there already", experiment.id));
        }
        if !codes.insert(experiment.code) {
            found.say(format!("{here}.code"), "a number from 1 that no other of its sort has is needed");
        }
    }
}
