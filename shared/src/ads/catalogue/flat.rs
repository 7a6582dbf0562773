//! A catalogue in the form in which it travels to the edge: rows refer to rows by index, words are codes, filters are
//! parsed. The origin builds it from a document without problems; a reader compiles it to [`super::CompiledCatalogue`].

use std::collections::BTreeMap;
use std::ops::Range;

use bytestring::ByteString;

use super::{Bid, CapMode, CapRule, Catalogue, Targets};
use crate::ads::budget::CampaignBudget;
use crate::base::ids::{Micros, Millis};
use crate::facts::actions::{ActionType, TimeWindow};
use crate::facts::offer_codes::RecipientLimit;
use crate::settings::vocabulary::Vocabulary;
use crate::targeting::experiment::{self, Experiment};
use crate::targeting::filter::Filter;

/// A whole catalogue. Indexes count from 0.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlatCatalogue {
    /// The experiments.
    pub experiments: Vec<Experiment>,
    /// The distinct pairs of action type and window that caps count.
    pub questions: Vec<(ActionType, TimeWindow)>,
    /// The distinct filters of campaigns and ad groups.
    pub filters: Vec<Filter>,
    /// The distinct lists of caps; each cap is an index in [`Self::questions`] and a limit.
    pub caps: Vec<Vec<(u32, u32)>>,
    /// The distinct lists of ad sizes.
    pub sizes: Vec<Vec<[u32; 2]>>,
    /// The advertisers.
    pub advertisers: Vec<FlatAdvertiser>,
    /// The campaigns.
    pub campaigns: Vec<FlatCampaign>,
    /// The ad groups.
    pub groups: Vec<FlatGroup>,
    /// The ads in order of preference: greatest weight first, then smallest code.
    pub ads: Vec<FlatAd>,
}

/// Columns that rows of all levels have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowHead {
    /// Id of the row.
    pub id: ByteString,
    /// Code of the row.
    pub code: u32,
    /// Index of its list of caps; `None` if it has no caps.
    pub caps: Option<u32>,
    /// Arm to which the row is restricted; never set for an advertiser.
    pub arm: Option<FlatArm>,
}

/// An arm of an experiment: the experiment's index and the arm's code.
pub type FlatArm = (u32, u8);

/// An advertiser.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlatAdvertiser {
    /// Common columns.
    pub head: RowHead,
    /// Whether one page may show several of its ads.
    pub repeats: bool,
}

/// A campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlatCampaign {
    /// Common columns.
    pub head: RowHead,
    /// Index of its advertiser.
    pub advertiser: u32,
    /// Index of its filter.
    pub target: Option<u32>,
    /// Time in which its ads are placed, end exclusive.
    pub runs: Range<Millis>,
    /// Price of the billed event.
    pub bid: Bid,
    /// Whether its ads fill either all placements of a page or none.
    pub roadblock: bool,
    /// Whether its caps are strict.
    pub strict: bool,
    /// Whether it has a budget, so that its pace limits the calls in which it takes part.
    pub paced: bool,
    /// Limit on the number of recipients.
    pub recipients: Option<RecipientLimit>,
    /// Competitive categories, as indexes that stand for their names.
    pub categories: Vec<u32>,
}

/// An ad group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlatGroup {
    /// Common columns.
    pub head: RowHead,
    /// Index of its campaign.
    pub campaign: u32,
    /// Index of its filter.
    pub target: Option<u32>,
}

/// An ad.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlatAd {
    /// Common columns.
    pub head: RowHead,
    /// Index of its ad group.
    pub group: u32,
    /// Index of its list of sizes; `None` if it fits every placement.
    pub sizes: Option<u32>,
    /// Creative for the page, as JSON.
    pub creative: ByteString,
    /// Landing page of a click.
    pub landing: ByteString,
}

impl FlatCatalogue {
    /// Flattens a catalogue whose filters are parsed. A row that [`Catalogue::problems`] would refuse, because its
    /// parent or a word is unknown, is left out together with its children.
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
                bid: campaign.bid.unwrap_or(Bid::CpmMicros(Micros::ZERO)),
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
            let action_type = self.words.action_type(&cap.action)?;
            Some((self.questions.of((action_type, cap.window)), cap.limit))
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

/// Distinct values, each with its index.
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
    /// `None` for an empty list, which needs no entry.
    fn of_list(&mut self, list: Vec<T>) -> Option<u32> {
        (!list.is_empty()).then(|| self.of(list))
    }
}
