//! The catalogue of a tenant: advertisers, their campaigns, the ad groups of a campaign, and the ads, as the catalogue
//! document describes them. Each row has an id for people and a code for tokens and facts. A code is permanent: it is
//! never reused.
//!
//! A document is checked as a whole ([`Catalogue::problems`]) and then compiled ([`CompiledCatalogue`]) into the form
//! that a decision needs.

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
#[cfg(feature = "schema")]
use crate::base::schema;
use crate::base::{limits, moment};
use crate::facts::actions::TimeWindow;
use crate::facts::attributes::NameDictionary;
use crate::facts::offer_codes::RecipientLimit;
use crate::settings::vocabulary::Vocabulary;
use crate::targeting::experiment::{self, Experiment};
use crate::targeting::filter::{self, CountAnswerer, Entities, Filter, FilterWords};

pub use compiled::{AdSet, BoundCap, CampaignTerms, CandidateAd, CompiledCatalogue, OfferLimit};
pub use flat::{FlatAd, FlatAdvertiser, FlatArm, FlatCampaign, FlatCatalogue, FlatGroup, RowHead};

/// Targeting of a catalogue: one optional filter for each campaign and ad group, in the catalogue's order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Targets {
    /// Filters of the campaigns.
    pub campaigns: Vec<Option<Filter>>,
    /// Filters of the ad groups.
    pub groups: Vec<Option<Filter>>,
}

/// The catalogue of a tenant. Each list is in the document's order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// The advertisers, which pay for campaigns.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::CATALOGUE_ROWS)))]
    #[serde(rename = "advertiser", default)]
    pub advertisers: Vec<Advertiser>,
    /// The campaigns.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::CATALOGUE_ROWS)))]
    #[serde(rename = "campaign", default)]
    pub campaigns: Vec<Campaign>,
    /// The ad groups: each groups ads of one campaign.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::CATALOGUE_ROWS)))]
    #[serde(rename = "ad_group", default)]
    pub ad_groups: Vec<AdGroup>,
    /// The ads.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::CATALOGUE_ROWS)))]
    #[serde(rename = "ad", default)]
    pub ads: Vec<Ad>,
    /// The experiments.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::EXPERIMENTS)))]
    #[serde(rename = "experiment", default, skip_serializing_if = "Vec::is_empty")]
    pub experiments: Vec<Experiment>,
}

/// An advertiser, which pays for its campaigns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Advertiser {
    /// Id: 1 to 64 of `a-z`, `0-9`, `-`, `_`.
    #[cfg_attr(feature = "schema", schemars(with = "schema::RowId"))]
    pub id: String,
    /// Code, at least 1; never used for another advertiser.
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::RowCode>"))]
    pub code: u32,
    /// Whether one page may show several of its ads. Default: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats: bool,
    /// Caps over all ads of the advertiser.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::CAPS)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caps: Vec<CapRule>,
}

/// A campaign of one advertiser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    /// Id: 1 to 64 of `a-z`, `0-9`, `-`, `_`.
    #[cfg_attr(feature = "schema", schemars(with = "schema::RowId"))]
    pub id: String,
    /// Code, at least 1; never used for another campaign.
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::RowCode>"))]
    pub code: u32,
    /// Id of the campaign's advertiser.
    #[cfg_attr(feature = "schema", schemars(with = "schema::RowId"))]
    pub advertiser: String,
    /// First time at which its ads are placed: a date and time with offset (RFC 3339), or milliseconds since 1970.
    /// Default: no lower bound.
    #[cfg_attr(feature = "schema", schemars(with = "Option<moment::WrittenMoment>"))]
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "moment::text")]
    pub starts: Option<String>,
    /// Time from which its ads are placed no longer. Default: never.
    #[cfg_attr(feature = "schema", schemars(with = "Option<moment::WrittenMoment>"))]
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "moment::text")]
    pub ends: Option<String>,
    /// The price and the billed event. Default: free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bid: Option<Bid>,
    /// Total budget in micros. Default: unlimited.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = limits::BUDGET_MICROS.get())))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_micros: Option<Micros>,
    /// Budget for one day of its time zone, in micros. Default: unlimited.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = limits::BUDGET_MICROS.get())))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_budget_micros: Option<Micros>,
    /// Time zone that defines its days, as a name of the time zone database such as `Europe/Berlin`. Default `UTC`.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::TIME_ZONE_BYTES)))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// How the budget is spread over time. Default `even`.
    #[serde(default, skip_serializing_if = "Pacing::is_even")]
    pub pace: Pacing,
    /// Limit on the number of people who get its ads, each with an offer code. Default: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipients: Option<RecipientLimit>,
    /// Filter for the people who may see its ads. Default: everyone.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Map<String, Value>>"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targeting: Option<Value>,
    /// Competitive categories: one page shows ads of at most one campaign of each category.
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = limits::CATEGORIES), inner(length(min = 1, max = limits::CATALOGUE_ID_BYTES)))
    )]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// Whether its ads fill either all placements of a page or none. Default: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub roadblock: bool,
    /// Arm of an experiment, as `experiment/arm`: only people in that arm see its ads. Default: everyone.
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::ArmName>"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// How its caps are enforced. Default `ledger`.
    #[serde(default)]
    pub cap_mode: CapMode,
    /// Caps over all ads of the campaign.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::CAPS)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caps: Vec<CapRule>,
}

/// Price of a billed event, in micros of the catalogue's currency, or a share of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Bid {
    /// Per thousand impressions.
    CpmMicros(#[cfg_attr(feature = "schema", schemars(range(min = 0, max = limits::BID_MICROS.get())))] Micros),
    /// Per click.
    CpcMicros(#[cfg_attr(feature = "schema", schemars(range(min = 0, max = limits::BID_MICROS.get())))] Micros),
    /// Per conversion.
    CpaMicros(#[cfg_attr(feature = "schema", schemars(range(min = 0, max = limits::BID_MICROS.get())))] Micros),
    /// Share of a conversion's value in millionths, at most 1,000,000.
    SharePpm(#[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1_000_000)))] i64),
}

impl Bid {
    /// Whether the bid is within its bounds.
    #[must_use]
    pub fn is_within(self) -> bool {
        match self {
            Self::CpmMicros(micros) | Self::CpcMicros(micros) | Self::CpaMicros(micros) => {
                (Micros::ZERO..=limits::BID_MICROS).contains(&micros)
            }
            Self::SharePpm(share) => (0..=1_000_000).contains(&share),
        }
    }
}

/// How a campaign spreads its budget over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// A daily budget over the day; without one, the total until the campaign ends.
    #[default]
    Even,
    /// As fast as possible.
    Asap,
}

impl Pacing {
    /// Whether it is the default.
    #[must_use]
    pub fn is_even(&self) -> bool {
        *self == Self::Even
    }
}

/// How a campaign's caps are enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CapMode {
    /// From the snapshot and the browser's ledger: free of cost, but a cap may be exceeded by actions that neither
    /// contains yet.
    #[default]
    Ledger,
    /// By one object per person, called before each placement and each impression: never exceeded, but each costs a
    /// round trip.
    Strict,
}

/// An ad group: ads of one campaign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AdGroup {
    /// Id: 1 to 64 of `a-z`, `0-9`, `-`, `_`.
    #[cfg_attr(feature = "schema", schemars(with = "schema::RowId"))]
    pub id: String,
    /// Code, at least 1; never used for another ad group.
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::RowCode>"))]
    pub code: u32,
    /// Id of its campaign.
    #[cfg_attr(feature = "schema", schemars(with = "schema::RowId"))]
    pub campaign: String,
    /// Filter for the people who may see its ads, in addition to the campaign's filter. Default: no further condition.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Map<String, Value>>"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targeting: Option<Value>,
    /// Arm of an experiment, as `experiment/arm`: only people in that arm see its ads. Default: everyone.
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::ArmName>"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// Caps over all ads of the group.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::CAPS)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caps: Vec<CapRule>,
}

/// An ad.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Ad {
    /// Id: 1 to 64 of `a-z`, `0-9`, `-`, `_`.
    #[cfg_attr(feature = "schema", schemars(with = "schema::RowId"))]
    pub id: String,
    /// Code, at least 1; never used for another ad.
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::RowCode>"))]
    pub code: u32,
    /// Id of its ad group.
    #[cfg_attr(feature = "schema", schemars(with = "schema::RowId"))]
    pub ad_group: String,
    /// Creative for the page: any JSON of at most 8,192 bytes, passed on unchanged.
    pub creative: Value,
    /// Landing page of a click: an `https` or `http` address.
    #[cfg_attr(feature = "schema", schemars(url))]
    pub landing: String,
    /// Sizes of the ad, as width and height. Default: it fits every placement.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::SIZES), inner(inner(range(min = 1)))))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<[u32; 2]>,
    /// Tie-break between ads of equal value: the greater weight is placed, then the smaller code. Default 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = limits::WEIGHT)))]
    #[serde(default = "one")]
    pub weight: u32,
    /// Arm of an experiment, as `experiment/arm`: only people in that arm see it. Default: everyone.
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::ArmName>"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// Caps of this ad.
    #[cfg_attr(feature = "schema", schemars(length(max = limits::CAPS)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caps: Vec<CapRule>,
}

fn one() -> u32 {
    1
}

/// A frequency cap as written: at most `limit` actions of a type within a window. The caps of all four levels must
/// hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CapRule {
    /// Action type that is counted: `impression`, `click`, or another one of the vocabulary.
    pub action: String,
    /// Largest number of actions.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = limits::CAP_LIMIT)))]
    pub limit: u32,
    /// Window in which they are counted, in whole buckets of its unit; at most 30 days.
    pub window: TimeWindow,
}

impl Catalogue {
    /// Whether the catalogue has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows().iter().all(|(_, rows)| rows.is_empty()) && self.experiments.is_empty()
    }

    /// All problems of the document; `at` is its path.
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
        let cap_questions: BTreeSet<_> = self
            .rows()
            .iter()
            .flat_map(|(_, rows)| rows)
            .flat_map(|row| row.caps)
            .map(|cap| (&cap.action, cap.window))
            .collect();
        if cap_questions.len() > limits::CAP_QUESTIONS {
            let most = limits::CAP_QUESTIONS;
            found.say(
                at,
                format!(
                    "caps use {} different pairs of action and window: at most {most} are allowed",
                    cap_questions.len()
                ),
            );
        }
        found.0
    }

    /// Every `arm` must name an existing arm. One ad must not need two arms of one experiment: no person is in both.
    fn arm_problems(&self, at: &str, found: &mut ProblemList) {
        let experiments = self.experiments.get(..limits::EXPERIMENTS).unwrap_or(&self.experiments);
        let named = |arm: &str| experiment::arm_named(experiments, arm).map(|(place, _)| place);
        let mut say = |at: String, arm: Option<&String>, above: &[Option<&String>]| {
            let Some(arm) = arm else { return };
            let Some(own) = named(arm) else {
                return found.say(at, format!("there is no experiment and arm `{arm}`; `experiment/arm` is needed"));
            };
            if let Some(other) = above.iter().flatten().find(|other| **other != arm && named(other) == Some(own)) {
                found.say(at, format!("its campaign or ad group is for the arm `{other}`: no person is in both arms"));
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

    /// The form that travels to the edge, for a catalogue without [`Self::problems`].
    ///
    /// # Errors
    /// All problems of its filters.
    pub fn flat(&self, attributes: &NameDictionary, words: &Vocabulary) -> Result<FlatCatalogue, Vec<ConfigProblem>> {
        let targets = self.targets("", attributes, words)?;
        Ok(FlatCatalogue::of(self, words, &targets))
    }

    /// The filters of its campaigns and ad groups, in their order; `at` is the document's path.
    ///
    /// # Errors
    /// All problems of the filters.
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

    /// The common part of all rows, level by level; each row names its parent in the level before.
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
    /// The time in which its ads are placed, end exclusive. An unreadable time counts as not given; a time before 1970
    /// counts as the start of 1970.
    #[must_use]
    pub fn runs(&self) -> std::ops::Range<Millis> {
        let moment = |text: &Option<String>| moment::parse(text.as_ref()?);
        moment(&self.starts).unwrap_or(0)..moment(&self.ends).unwrap_or(Millis::MAX)
    }
}
