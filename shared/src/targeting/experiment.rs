//! Experiments: the assignment of people to arms.
//!
//! An arm is drawn from the person's random value for this experiment ([`BucketPurpose::Experiment`]), never from the
//! sampling value. The draw alone does not make an arm permanent; the exposure does, which is a fact of the visitor
//! ([`Exposures`]). An exposed visitor stays in its arm when shares change and when a login joins it with another
//! person. The effect of an arm on a page is defined in the catalogue: campaigns, ad groups and ads that only people in
//! the arm see.

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
#[cfg(feature = "schema")]
use crate::base::schema;
use crate::facts::actions::ActionType;
use crate::facts::exposures::Exposures;
use crate::facts::fact::PURCHASE;
use crate::settings::vocabulary::Vocabulary;

/// An experiment with its arms. Its code and those of its arms are permanent and never reused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Id: 1 to 64 of `a-z`, `0-9`, `-`, `_`. The draw of arms depends on it: another id assigns people to other arms.
    #[cfg_attr(feature = "schema", schemars(with = "schema::RowId"))]
    pub id: String,
    /// Code, at least 1, greater than the codes of all earlier experiments; never used for another experiment.
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::RowCode>"))]
    pub code: u32,
    /// The arms.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = limits::EXPERIMENT_ARMS)))]
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
    /// Conversion event: the name of an event, or an action type of the vocabulary other than `impression`. It must not
    /// change while the experiment runs. Default `purchase`.
    #[serde(default = "purchase")]
    pub conversion: String,
    /// Whether the origin shifts traffic to the arms that convert best; the control's share and the sum of the other
    /// shares stay the same. Default: every arm keeps its share.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub selection: bool,
    /// Start: a date and time with offset (RFC 3339), or milliseconds since the Unix epoch.
    #[cfg_attr(feature = "schema", schemars(with = "moment::WrittenMoment"))]
    #[serde(deserialize_with = "moment::millis")]
    pub starts: Millis,
    /// End, in either form. Default: when the experiment is removed from the catalogue.
    #[cfg_attr(feature = "schema", schemars(with = "Option<moment::WrittenMoment>"))]
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "moment::optional_millis")]
    pub ends: Option<Millis>,
}

/// One arm of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Id: 1 to 64 of `a-z`, `0-9`, `-`, `_`.
    #[cfg_attr(feature = "schema", schemars(with = "schema::RowId"))]
    pub id: String,
    /// Code, 1 to 255; never used for another arm of the experiment.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 255)))]
    pub code: u8,
    /// Share of people in the arm, in 1/10,000. All shares together are at most 10,000; all other people are outside
    /// the experiment.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 10_000)))]
    pub share: u32,
    /// Whether the other arms are compared with this one; at most one arm.
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

    /// The arm that a person is drawn into; `None` for a person outside the experiment. A recorded exposure takes
    /// precedence over the draw, see [`arms`].
    ///
    /// `shares` are the origin's latest traffic allocation, in 1/10,000, one per arm in the order of arm codes. If
    /// their number differs from the number of arms, the catalogue's shares are used. The control has the first
    /// buckets, so that a change of the other shares moves no person into or out of the control.
    #[must_use]
    pub fn arm(&self, random: &PersonRandom, shares: &[u32]) -> Option<&Arm> {
        let index = |of: &Arm| self.arms.iter().filter(|arm| arm.code < of.code).count();
        let allocated = |arm: &Arm| shares.get(index(arm)).filter(|_| shares.len() == self.arms.len());
        let bucket = u64::from(random.bucket(BucketPurpose::Experiment(&self.id)));
        let arms = || self.arms.iter().map(|arm| (arm, allocated(arm).copied().unwrap_or(arm.share)));
        let in_order = arms().filter(|(arm, _)| arm.control).chain(arms().filter(|(arm, _)| !arm.control));
        let mut end = 0;
        in_order.into_iter().find_map(|(arm, share)| {
            end += u64::from(share);
            (bucket < end).then_some(arm)
        })
    }

    /// Arm with this code.
    #[must_use]
    pub fn arm_of(&self, code: u8) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.code == code)
    }

    fn problems(&self, at: &str, words: &Vocabulary, found: &mut ProblemList) {
        if !is_id(&self.id) {
            found.say(format!("{at}.id"), ID.to_string());
        }
        if self.code == 0 {
            found.say(format!("{at}.code"), "a number of 1 or more that no other entry of the list has is needed");
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
            found.say(format!("{at}.arm"), format!("the sum of the shares is at most {BUCKETS}"));
        }
        if self.arms.iter().filter(|arm| arm.control).count() > 1 {
            found.say(format!("{at}.arm"), "at most one arm is the control");
        }
        let length = 1..=limits::NAME_BYTES;
        if !length.contains(&self.conversion.len())
            || words.action_type(&self.conversion) == Some(ActionType::IMPRESSION)
        {
            found.say(
                format!("{at}.conversion"),
                "the name of an event or an action type other than `impression` is needed",
            );
        }
        if self.ends.is_some_and(|ends| ends <= self.starts) {
            found.say(format!("{at}.ends"), "a time after `starts` is needed");
        }
    }
}

/// The arm that the text `experiment/arm` names, with the experiment's index.
#[must_use]
pub fn arm_named<'e>(experiments: &'e [Experiment], name: &str) -> Option<(usize, &'e Arm)> {
    let (of, arm) = name.split_once('/')?;
    let (place, experiment) = experiments.iter().enumerate().find(|(_, experiment)| experiment.id == of)?;
    Some((place, experiment.arms.iter().find(|known| known.id == arm)?))
}

/// Traffic allocation by experiment code: shares in 1/10,000, one per arm in the order of arm codes, so that the order
/// of arms in the catalogue has no influence.
pub type Shares = BTreeMap<u32, Vec<u32>>;

/// Code of the person's arm in each experiment, in order: the arm of the first exposure, otherwise the drawn arm.
/// `None` for a person outside the experiment and for an experiment that does not run.
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

/// All problems of a tenant's experiments; `at` is the path of the list.
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
            found.say(format!("{here}.code"), "a number of 1 or more that no other entry of the list has is needed");
        }
    }
}
