//! The catalogue: advertisers, their campaigns, the ad groups of those, and the ads that may be placed, as a tenant's
//! catalogue file says. Each has an id for people and a code for tokens and facts; a code is for ever: append-only,
//! never reused.
//!
//! What it says is checked as a whole ([`Catalogue::problems`]) and then compiled ([`CompiledCatalogue`]) into what a decision
//! needs. It decides nothing itself.

mod compiled;
mod flat;
mod problems;
mod queried;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::ids::{Micros, Millis};
use crate::base::problems::{ConfigProblem, ProblemList};
use crate::base::{limits, moment};
use crate::facts::actions::TimeWindow;
use crate::facts::attributes::NameDictionary;
use crate::facts::offer_slots::RecipientLimit;
use crate::settings::vocabulary::Vocabulary;
use crate::targeting::experiment::{self, Experiment};
use crate::targeting::filter::{self, CountAnswerer, Entities, Filter, FilterWords};

pub use compiled::{AdSet, BoundCap, CampaignTerms, CandidateAd, CompiledCatalogue, OfferLimit};
pub use flat::{FlatAd, FlatAdvertiser, FlatArm, FlatCampaign, FlatCatalogue, FlatGroup, RowHead};

/// Whom ads are for: a filter each of a catalogue's campaigns and ad groups, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Targets {
    /// Of the campaigns.
    pub campaigns: Vec<Option<Filter>>,
    /// Of the ad groups.
    pub groups: Vec<Option<Filter>>,
}

/// What may be placed. Every list in the order of its file; at most [`limits::CATALOGUE_ROWS`] each.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// Who pays.
    #[serde(rename = "advertiser", default)]
    pub advertisers: Vec<Advertiser>,
    /// What they pay for.
    #[serde(rename = "campaign", default)]
    pub campaigns: Vec<Campaign>,
    /// Ads of one campaign that belong together.
    #[serde(rename = "ad_group", default)]
    pub ad_groups: Vec<AdGroup>,
    /// The ads.
    #[serde(rename = "ad", default)]
    pub ads: Vec<Ad>,
    /// What is tested; at most [`limits::EXPERIMENTS`].
    #[serde(rename = "experiment", default, skip_serializing_if = "Vec::is_empty")]
    pub experiments: Vec<Experiment>,
}

/// Who pays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advertiser {
    /// Its name: 1 to 64 of `a-z`, `0-9`, `-`, `_`.
    pub id: String,
    /// Its code, 1 or more; no other advertiser ever has it.
    pub code: u32,
    /// Whether one page may show several of its ads. Default: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats: bool,
    /// Caps over all its ads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caps: Vec<CapRule>,
}

/// What an advertiser pays for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    /// Its name: 1 to 64 of `a-z`, `0-9`, `-`, `_`.
    pub id: String,
    /// Its code, 1 or more; no other campaign ever has it.
    pub code: u32,
    /// The id of its advertiser.
    pub advertiser: String,
    /// From when on its ads are placed: a date and time with its offset (RFC 3339), or milliseconds since 1970.
    /// Default: at once.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "moment::text")]
    pub starts: Option<String>,
    /// From when on they are not any more. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "moment::text")]
    pub ends: Option<String>,
    /// What its advertiser pays, and for what. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bid: Option<Bid>,
    /// What it may spend in all, in micros: 1 to [`limits::BUDGET_MICROS`]. Default: whatever comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_micros: Option<Micros>,
    /// What it may spend on one day of its time zone. Default: whatever comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_budget_micros: Option<Micros>,
    /// Where its days begin, by its name in the time zone database: `Europe/Berlin`. Default `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// How fast it spends. Default `even`.
    #[serde(default, skip_serializing_if = "Pacing::is_even")]
    pub pace: Pacing,
    /// How many people may get its ads, each with a number of its own. Default: whoever comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipients: Option<RecipientLimit>,
    /// Whom its ads are for, as a filter (API, "Filters"). Default: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targeting: Option<Value>,
    /// What it competes in: one page shows ads of one campaign of each category at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// Whether its ads fill all placements of a page, or none. Default: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub roadblock: bool,
    /// The arm of an experiment that it belongs to, as `experiment/arm`: only people in that arm see it. Default: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// How far its caps are to be believed. Default `ledger`.
    #[serde(default)]
    pub cap_mode: CapMode,
    /// Caps over all its ads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caps: Vec<CapRule>,
}

/// What an advertiser pays, in micros of the catalogue's currency: 0 to [`limits::BID_MICROS`]; or a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bid {
    /// For a thousand impressions.
    CpmMicros(i64),
    /// For a click.
    CpcMicros(i64),
    /// For a conversion.
    CpaMicros(i64),
    /// For a conversion, as a share of its value: millionths, 1,000,000 at most.
    SharePpm(i64),
}

impl Bid {
    /// Whether it is within its bounds.
    #[must_use]
    pub fn is_within(self) -> bool {
        match self {
            Self::CpmMicros(micros) | Self::CpcMicros(micros) | Self::CpaMicros(micros) => {
                (0..=limits::BID_MICROS).contains(&micros)
            }
            Self::SharePpm(share) => (0..=1_000_000).contains(&share),
        }
    }
}

/// How fast a campaign spends its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// The day's over the day; without one, all of it until the campaign ends.
    #[default]
    Even,
    /// As soon as it can.
    Asap,
}

impl Pacing {
    /// Whether it is what there is without a word.
    #[must_use]
    pub fn is_even(&self) -> bool {
        *self == Self::Even
    }
}

/// How a campaign's caps are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapMode {
    /// From the snapshot and the browser's own ledger: costs nothing, and may be over by what neither has seen yet.
    #[default]
    Ledger,
    /// Asks one object a person before each placing and each impression: never over, and a round trip each.
    Strict,
}

/// Ads of one campaign that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdGroup {
    /// Its name: 1 to 64 of `a-z`, `0-9`, `-`, `_`.
    pub id: String,
    /// Its code, 1 or more; no other ad group ever has it.
    pub code: u32,
    /// The id of its campaign.
    pub campaign: String,
    /// Whom its ads are for, of those whom its campaign's are for. Default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targeting: Option<Value>,
    /// The arm of an experiment that it belongs to, as `experiment/arm`: only people in that arm see it. Default: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// Caps over all its ads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caps: Vec<CapRule>,
}

/// An ad.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ad {
    /// Its name: 1 to 64 of `a-z`, `0-9`, `-`, `_`.
    pub id: String,
    /// Its code, 1 or more; no other ad ever has it.
    pub code: u32,
    /// The id of its ad group.
    pub ad_group: String,
    /// What the page shows: any JSON of [`limits::CREATIVE_BYTES`] at most, handed to it as it is.
    pub creative: Value,
    /// Where a click leads: an `https` or `http` address.
    pub landing: String,
    /// The sizes it comes in, width and height. Default: it fits every placement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<[u32; 2]>,
    /// Of two ads worth the same the heavier one is placed; of equal weight the one of the smaller code. Default 1.
    #[serde(default = "one")]
    pub weight: u32,
    /// The arm of an experiment that it belongs to, as `experiment/arm`: only people in that arm see it. Default: everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// Caps of this ad.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caps: Vec<CapRule>,
}

fn one() -> u32 {
    1
}

/// At most `limit` of an action within a window (S3.5). All caps at all four levels must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapRule {
    /// The action counted: `impression`, `click`, or a verb of the vocabulary.
    pub action: String,
    /// How many there may be: 1 to [`limits::CAP_LIMIT`].
    pub limit: u32,
    /// Over which time: [`limits::CAP_DAYS`] days at most, in whole buckets of its unit.
    pub window: TimeWindow,
}

impl Catalogue {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows().iter().all(|(_, rows)| rows.is_empty()) && self.experiments.is_empty()
    }

    /// Everything wrong with it; `at` is where it stands.
    #[must_use]
    pub fn problems(&self, at: &str, words: &Vocabulary) -> Vec<ConfigProblem> {
        let mut found = ProblemList::default();
        let mut parents = BTreeSet::new();
        for (sort, rows) in self.rows() {
            let at = format!("{at}.{sort}");
            if rows.len() > limits::CATALOGUE_ROWS {
                found.say(at.clone(), format!("{} at most", limits::CATALOGUE_ROWS));
            }
            parents = problems::rows_problems(
                rows.get(..limits::CATALOGUE_ROWS).unwrap_or(&rows),
                &parents,
                &at,
                words,
                &mut found,
            );
        }
        for (i, campaign) in self.campaigns.iter().enumerate().take(limits::CATALOGUE_ROWS) {
            campaign.problems(&format!("{at}.campaign[{i}]"), &mut found);
        }
        for (i, ad) in self.ads.iter().enumerate().take(limits::CATALOGUE_ROWS) {
            ad.problems(&format!("{at}.ad[{i}]"), &mut found);
        }
        experiment::problems(&self.experiments, &format!("{at}.experiment"), words, &mut found);
        self.arm_problems(at, &mut found);
        let asked: BTreeSet<_> = self
            .rows()
            .iter()
            .flat_map(|(_, rows)| rows)
            .flat_map(|row| row.caps)
            .map(|cap| (&cap.action, cap.window))
            .collect();
        if asked.len() > limits::CAP_QUESTIONS {
            let most = limits::CAP_QUESTIONS;
            found.say(
                at,
                format!("{most} different pairs of a cap's action and window at most, {} are there", asked.len()),
            );
        }
        found.0
    }

    /// Every `arm` must be there, and one experiment's arms must not meet in one ad: nobody would ever see it.
    fn arm_problems(&self, at: &str, found: &mut ProblemList) {
        let experiments = self.experiments.get(..limits::EXPERIMENTS).unwrap_or(&self.experiments);
        let named = |arm: &str| experiment::arm_named(experiments, arm).map(|(place, _)| place);
        let mut say = |at: String, arm: Option<&String>, above: &[Option<&String>]| {
            let Some(arm) = arm else { return };
            let Some(own) = named(arm) else {
                return found.say(at, format!("there is no experiment and arm `{arm}`; `experiment/arm` is needed"));
            };
            if let Some(other) = above.iter().flatten().find(|other| **other != arm && named(other) == Some(own)) {
                found.say(at, format!("what it belongs to is of the arm `{other}`: nobody is in both"));
            }
        };
        let mut campaigns: BTreeMap<&str, Option<&String>> = BTreeMap::new();
        for (i, campaign) in self.campaigns.iter().enumerate().take(limits::CATALOGUE_ROWS) {
            say(format!("{at}.campaign[{i}].arm"), campaign.arm.as_ref(), &[]);
            campaigns.insert(&campaign.id, campaign.arm.as_ref());
        }
        let mut groups: BTreeMap<&str, [Option<&String>; 2]> = BTreeMap::new();
        for (i, group) in self.ad_groups.iter().enumerate().take(limits::CATALOGUE_ROWS) {
            let above = campaigns.get(group.campaign.as_str()).copied().flatten();
            say(format!("{at}.ad_group[{i}].arm"), group.arm.as_ref(), &[above]);
            groups.insert(&group.id, [above, group.arm.as_ref()]);
        }
        for (i, ad) in self.ads.iter().enumerate().take(limits::CATALOGUE_ROWS).filter(|(_, ad)| ad.arm.is_some()) {
            let above = groups.get(ad.ad_group.as_str()).copied().unwrap_or_default();
            say(format!("{at}.ad[{i}].arm"), ad.arm.as_ref(), &above);
        }
    }

    /// The same as it travels to the edge; of one whose [`Self::problems`] are none.
    ///
    /// # Errors
    /// Everything wrong with its filters.
    pub fn flat(&self, attributes: &NameDictionary, words: &Vocabulary) -> Result<FlatCatalogue, Vec<ConfigProblem>> {
        let targets = self.targets("", attributes, words)?;
        Ok(FlatCatalogue::of(self, words, &targets))
    }

    /// The filters of its campaigns and ad groups, in their order; `at` is where it stands.
    ///
    /// # Errors
    /// Everything wrong with them.
    pub fn targets(
        &self,
        at: &str,
        attributes: &NameDictionary,
        words: &Vocabulary,
    ) -> Result<Targets, Vec<ConfigProblem>> {
        let [advertisers, campaigns, ad_groups, ads] = self.rows().map(|(_, rows)| codes(rows));
        let entities: Entities<'_> = [ads, ad_groups, campaigns, advertisers];
        let words =
            FilterWords { attributes, vocabulary: words, entities: &entities, answers: CountAnswerer::Snapshot };
        let mut problems = Vec::new();
        let mut parse = |sort: &str, i: usize, targeting: Option<&Value>| {
            let parsed = filter::parse(targeting?, &format!("{at}.{sort}[{i}].targeting"), &words);
            parsed.map_err(|found| problems.extend(found)).ok()
        };
        let campaigns = self.campaigns.iter().enumerate().map(|(i, c)| parse("campaign", i, c.targeting.as_ref()));
        let campaigns: Vec<Option<Filter>> = campaigns.collect();
        let groups = self.ad_groups.iter().enumerate().map(|(i, g)| parse("ad_group", i, g.targeting.as_ref()));
        let groups: Vec<Option<Filter>> = groups.collect();
        let all = campaigns.iter().chain(&groups).flatten();
        problems.extend(filter::counts_problem(all).map(|message| ConfigProblem { path: at.to_owned(), message }));
        if problems.is_empty() { Ok(Targets { campaigns, groups }) } else { Err(problems) }
    }

    /// What the four sorts share: each row names its parent in the sort before.
    fn rows(&self) -> [(&'static str, Vec<Row<'_>>); 4] {
        let row = |id, code: &u32, caps, parent| Row { id, code: *code, caps, parent };
        let advertisers = self.advertisers.iter().map(|a| row(&a.id, &a.code, &a.caps, None));
        let campaigns =
            self.campaigns.iter().map(|c| row(&c.id, &c.code, &c.caps, Some(("advertiser", &c.advertiser))));
        let groups = self.ad_groups.iter().map(|g| row(&g.id, &g.code, &g.caps, Some(("campaign", &g.campaign))));
        let ads = self.ads.iter().map(|a| row(&a.id, &a.code, &a.caps, Some(("ad_group", &a.ad_group))));
        [
            ("advertiser", advertisers.collect()),
            ("campaign", campaigns.collect()),
            ("ad_group", groups.collect()),
            ("ad", ads.collect()),
        ]
    }
}

fn codes(rows: Vec<Row<'_>>) -> BTreeMap<&str, u32> {
    rows.into_iter().map(|row| (row.id.as_str(), row.code)).collect()
}

struct Row<'a> {
    id: &'a String,
    code: u32,
    caps: &'a Vec<CapRule>,
    parent: Option<(&'static str, &'a String)>,
}

impl Campaign {
    /// From when on its ads are placed, and from when on not any more; of what is no moment as if it were not there. What lies
    /// before 1970 is its beginning.
    #[must_use]
    pub fn runs(&self) -> std::ops::Range<Millis> {
        let moment = |text: &Option<String>| moment::parse(text.as_ref()?);
        moment(&self.starts).unwrap_or(0)..moment(&self.ends).unwrap_or(Millis::MAX)
    }
}
