//! A catalogue as it travels to the edge: rows name rows by their places, words are codes, filters are parsed. The origin
//! makes it of a document whose problems are none; a reader makes [`super::Compiled`] of it.

use std::collections::BTreeMap;
use std::ops::Range;

use bytestring::ByteString;

use super::{Bid, CapMode, CapRule, Catalogue, Targets};
use crate::ads::budget::CampaignBudget;
use crate::base::ids::Millis;
use crate::facts::actions::{ActionType, TimeWindow};
use crate::facts::offer_slots::RecipientLimit;
use crate::settings::vocabulary::Vocabulary;
use crate::targeting::experiment::{self, Experiment};
use crate::targeting::filter::Filter;

/// All of a catalogue. Places count from 0.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlatCatalogue {
    /// What is tested.
    pub experiments: Vec<Experiment>,
    /// What the caps ask of a person's actions, each pair once.
    pub questions: Vec<(ActionType, TimeWindow)>,
    /// The different filters of campaigns and ad groups, each once.
    pub filters: Vec<Filter>,
    /// The different lists of caps, each once: the place of what is asked in [`Self::questions`], and how many there may be.
    pub caps: Vec<Vec<(u32, u32)>>,
    /// The different lists of sizes that ads come in, each once.
    pub sizes: Vec<Vec<[u32; 2]>>,
    /// Who pays.
    pub advertisers: Vec<FlatAdvertiser>,
    /// What they pay for.
    pub campaigns: Vec<FlatCampaign>,
    /// Ads of one campaign that belong together.
    pub groups: Vec<FlatGroup>,
    /// The ads in the order of their choice: the heaviest first, then by code.
    pub ads: Vec<FlatAd>,
}

/// What rows of all sorts have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowHead {
    /// Its name.
    pub id: ByteString,
    /// Its code.
    pub code: u32,
    /// The place of its caps; `None` for none.
    pub caps: Option<u32>,
    /// The arm whose people alone see it: the experiment's place, and the arm's code. An advertiser has none.
    pub arm: Option<FlatArm>,
}

/// An arm of an experiment: the experiment's place, and the arm's code.
pub type FlatArm = (u32, u8);

/// An advertiser.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlatAdvertiser {
    /// What all rows have.
    pub head: RowHead,
    /// Whether one page may show several of its ads.
    pub repeats: bool,
}

/// A campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlatCampaign {
    /// What all rows have.
    pub head: RowHead,
    /// The place of its advertiser.
    pub advertiser: u32,
    /// The place of its filter.
    pub target: Option<u32>,
    /// From when on its ads are placed, and from when on not any more.
    pub runs: Range<Millis>,
    /// What is paid for what.
    pub bid: Bid,
    /// Whether its ads fill all placements of a page, or none.
    pub roadblock: bool,
    /// Whether its caps are strict.
    pub strict: bool,
    /// Whether it has a budget: it takes part in calls as its pace says.
    pub paced: bool,
    /// How many people may get its ads.
    pub recipients: Option<RecipientLimit>,
    /// What it competes in, by numbers that stand for the names.
    pub categories: Vec<u32>,
}

/// An ad group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlatGroup {
    /// What all rows have.
    pub head: RowHead,
    /// The place of its campaign.
    pub campaign: u32,
    /// The place of its filter.
    pub target: Option<u32>,
}

/// An ad.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlatAd {
    /// What all rows have.
    pub head: RowHead,
    /// The place of its ad group.
    pub group: u32,
    /// The place of the sizes it comes in; `None` for any.
    pub sizes: Option<u32>,
    /// What the page shows, as JSON.
    pub creative: ByteString,
    /// Where a click leads.
    pub landing: ByteString,
}

impl FlatCatalogue {
    /// Of a catalogue whose filters are parsed. A row whose parent or whose words are not there, which
    /// [`Catalogue::problems`] refuses, is left out with all that belongs to it.
    #[must_use]
    pub fn of(catalogue: &Catalogue, words: &Vocabulary, targets: &Targets) -> Self {
        let tested = &catalogue.experiments;
        let mut making = FlatBuilder::of(words, tested);
        let mut flat = Self { experiments: catalogue.experiments.clone(), ..Self::default() };
        let (mut advertisers, mut campaigns, mut groups) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for advertiser in &catalogue.advertisers {
            let Some(head) = making.head(&advertiser.id, advertiser.code, &advertiser.caps, None) else { continue };
            advertisers.insert(advertiser.id.as_str(), place(&flat.advertisers));
            flat.advertisers.push(FlatAdvertiser { head, repeats: advertiser.repeats });
        }
        let mut categories = ValueTable::default();
        for (campaign, target) in catalogue.campaigns.iter().zip(&targets.campaigns) {
            let parent = advertisers.get(campaign.advertiser.as_str());
            let head = making.head(&campaign.id, campaign.code, &campaign.caps, campaign.arm.as_ref());
            let (Some(advertiser), Some(head)) = (parent, head) else { continue };
            campaigns.insert(campaign.id.as_str(), place(&flat.campaigns));
            flat.campaigns.push(FlatCampaign {
                head,
                advertiser: *advertiser,
                target: making.target(target),
                runs: campaign.runs(),
                bid: campaign.bid.unwrap_or(Bid::CpmMicros(0)),
                roadblock: campaign.roadblock,
                strict: campaign.cap_mode == CapMode::Strict,
                paced: CampaignBudget::of(campaign).is_some(),
                recipients: campaign.recipients,
                categories: campaign.categories.iter().map(|name| categories.of(name.as_str())).collect(),
            });
        }
        for (group, target) in catalogue.ad_groups.iter().zip(&targets.groups) {
            let parent = campaigns.get(group.campaign.as_str());
            let head = making.head(&group.id, group.code, &group.caps, group.arm.as_ref());
            let (Some(campaign), Some(head)) = (parent, head) else { continue };
            groups.insert(group.id.as_str(), place(&flat.groups));
            flat.groups.push(FlatGroup { head, campaign: *campaign, target: making.target(target) });
        }
        let mut ads: Vec<_> = catalogue.ads.iter().collect();
        ads.sort_by_key(|ad| (std::cmp::Reverse(ad.weight), ad.code));
        for ad in ads {
            let head = making.head(&ad.id, ad.code, &ad.caps, ad.arm.as_ref());
            let parent = groups.get(ad.ad_group.as_str());
            let (Some(group), Some(head)) = (parent, head) else { continue };
            let sizes = making.sizes.of_list(ad.sizes.clone());
            let (creative, landing) = (ad.creative.to_string().into(), ad.landing.as_str().into());
            flat.ads.push(FlatAd { head, group: *group, sizes, creative, landing });
        }
        (flat.questions, flat.filters) = (making.questions.all, making.filters.all);
        (flat.caps, flat.sizes) = (making.caps.all, making.sizes.all);
        flat
    }
}

fn place<T>(rows: &[T]) -> u32 {
    u32::try_from(rows.len()).unwrap_or(u32::MAX)
}

struct FlatBuilder<'a> {
    words: &'a Vocabulary,
    tested: &'a [Experiment],
    questions: ValueTable<(ActionType, TimeWindow)>,
    filters: ValueTable<Filter>,
    caps: ValueTable<Vec<(u32, u32)>>,
    sizes: ValueTable<Vec<[u32; 2]>>,
}

impl<'a> FlatBuilder<'a> {
    fn of(words: &'a Vocabulary, tested: &'a [Experiment]) -> Self {
        let (questions, filters, caps, sizes) = Default::default();
        Self { words, tested, questions, filters, caps, sizes }
    }

    fn head(&mut self, id: &str, code: u32, caps: &[CapRule], arm: Option<&String>) -> Option<RowHead> {
        let caps = caps.iter().map(|cap| {
            let verb = self.words.verb(&cap.action)?;
            Some((self.questions.of((verb, cap.window)), cap.limit))
        });
        let caps = caps.collect::<Option<_>>()?;
        let caps = self.caps.of_list(caps);
        let arm = match arm {
            Some(arm) => {
                let (place, arm) = experiment::arm_named(self.tested, arm)?;
                Some((u32::try_from(place).ok()?, arm.code))
            }
            None => None,
        };
        Some(RowHead { id: id.into(), code, caps, arm })
    }

    fn target(&mut self, target: &Option<Filter>) -> Option<u32> {
        target.clone().map(|filter| self.filters.of(filter))
    }
}

/// Values, each once, and where each is.
#[derive(Debug)]
struct ValueTable<T> {
    all: Vec<T>,
    of: BTreeMap<T, u32>,
}

impl<T> Default for ValueTable<T> {
    fn default() -> Self {
        Self { all: Vec::new(), of: BTreeMap::new() }
    }
}

impl<T: Ord + Clone> ValueTable<T> {
    fn of(&mut self, value: T) -> u32 {
        if let Some(place) = self.of.get(&value) {
            return *place;
        }
        let place = place(&self.all);
        self.of.insert(value.clone(), place);
        self.all.push(value);
        place
    }
}

impl<T: Ord + Clone> ValueTable<Vec<T>> {
    /// `None` for an empty list, which nobody needs to look up.
    fn of_list(&mut self, list: Vec<T>) -> Option<u32> {
        (!list.is_empty()).then(|| self.of(list))
    }
}
