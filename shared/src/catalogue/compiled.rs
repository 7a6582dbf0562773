//! The catalogue as a decision needs it: the ads in the order of their choice, each with all caps that bind it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Bid;
use super::flat::{Flat, FlatAd, FlatAdvertiser, FlatArm, FlatCampaign, FlatGroup, Head};
use crate::actions::{Cap, Counter, Entity, Level, Verb, Window};
use crate::experiment::Experiment;
use crate::filter::{Index, Matches};
use crate::ids::Millis;
use crate::units::Recipients;

/// A catalogue without problems, compiled. Made once, read by every decision.
#[derive(Debug, Clone, Default)]
pub struct Compiled {
    /// The ads by weight, the heaviest first, then by code.
    pub offers: Vec<Offer>,
    /// What their campaigns agreed on, in the order of the catalogue's.
    pub terms: Vec<Terms>,
    /// Their ad groups that have ads.
    pub groups: Vec<Group>,
    /// The different filters of campaigns and ad groups, each once.
    pub targets: Index,
    /// What the caps ask of a person's actions, each pair once.
    pub questions: Vec<(Verb, Window)>,
    /// Counts for all ads, in their order.
    pub counter: Counter,
    /// What is tested.
    pub experiments: Vec<Experiment>,
    /// The campaigns that have only so many recipients.
    pub limited: Vec<Limited>,
    by_code: BTreeMap<u32, usize>,
    has_strict: bool,
}

/// An ad that may be placed.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// Its code, and those of what it belongs to.
    pub entity: Entity,
    /// The ids at [`Level::ALL`].
    pub ids: [Arc<str>; 4],
    /// What the page shows, as JSON.
    pub creative: String,
    /// Where a click leads.
    pub landing: String,
    /// The sizes it comes in; empty for any.
    pub sizes: Vec<[u32; 2]>,
    /// The place of its campaign's in [`Compiled::terms`].
    pub terms: usize,
    /// The place of its ad group in [`Compiled::groups`].
    pub group: usize,
    /// Whether its campaign's caps are strict, and there is one on impressions, which alone can be.
    pub strict: bool,
    /// All caps that bind it, from the ad up.
    pub bounds: Vec<Bound>,
}

/// The ads of one ad group, and of one arm: what they share is asked once for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// The place of its campaign's in [`Compiled::terms`].
    pub terms: usize,
    /// The places in [`Compiled::targets`] of its campaign's filter and of its own, which must match. They lie here and not
    /// behind a pointer: a decision asks this of all groups.
    pub targets: [Option<u32>; 2],
    /// The arms that a person must all be in.
    pub arms: Vec<FlatArm>,
    /// The places of its ads in [`Compiled::offers`].
    pub offers: Vec<u32>,
}

impl Group {
    /// Whether its filters are among those that match.
    #[must_use]
    pub fn is_for(&self, matches: &Matches) -> bool {
        self.targets.iter().flatten().all(|target| matches.contains(*target as usize))
    }

    /// The first experiment in whose arm of its ads a person is not, given the arms it is in by the experiments' places.
    #[must_use]
    pub fn outside(&self, arms: &[Option<u8>]) -> Option<usize> {
        let of = |place: u32| arms.get(place as usize).copied().flatten();
        self.arms.iter().find(|(place, arm)| of(*place) != Some(*arm)).map(|(place, _)| *place as usize)
    }
}

/// What a campaign's advertiser agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The campaign's code.
    pub campaign: u32,
    /// From when on its ads are placed, and from when on not any more.
    pub runs: std::ops::Range<Millis>,
    /// What is paid for what.
    pub bid: Bid,
    /// Whether its ads fill all placements of a page, or none.
    pub roadblock: bool,
    /// Whether one page may show several ads of its advertiser.
    pub repeats: bool,
    /// Whether it has a budget: it takes part in calls as its pace says.
    pub paced: bool,
    /// Whether only so many people get its ads.
    pub limited: bool,
    /// What it competes in, by numbers that stand for the names.
    pub categories: Vec<usize>,
}

/// A campaign that has only so many recipients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limited {
    /// Its code.
    pub campaign: u32,
    /// Its id, by which people are drawn.
    pub id: String,
    /// How many.
    pub recipients: Recipients,
}

/// A cap at one of an ad's levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Of what.
    pub level: Level,
    /// How much.
    pub cap: Cap,
    /// The place of its verb and window in [`Compiled::questions`].
    pub question: usize,
    /// The place in [`Compiled::counter`] of what is counted.
    pub place: u32,
}

impl Compiled {
    /// Compiles a catalogue as it travels.
    #[must_use]
    pub fn of(flat: Flat) -> Self {
        let Flat { questions, filters, advertisers, campaigns, groups, ads, experiments } = flat;
        let targets = Index::new(&filters.into_iter().map(Some).collect::<Vec<_>>());
        let terms = campaigns.iter().map(|campaign| terms(campaign, &advertisers)).collect();
        let limited = campaigns.iter().filter_map(Limited::of).collect();
        let mut compiled = Self { terms, targets, questions, experiments, limited, ..Self::default() };
        let families: Vec<Option<Family>> =
            groups.iter().map(|group| Family::of(group, &campaigns, &advertisers, &compiled.questions)).collect();
        let mut numbers: BTreeMap<(u32, Option<FlatArm>), usize> = BTreeMap::new();
        compiled.offers.reserve(ads.len());
        for ad in ads {
            let Some(Some(family)) = families.get(ad.group as usize) else { continue };
            let number = *numbers.entry((ad.group, ad.head.arm)).or_insert_with(|| {
                compiled.groups.push(family.group(ad.head.arm));
                compiled.groups.len() - 1
            });
            let place = compiled.offers.len();
            compiled.groups.iter_mut().skip(number).take(1).for_each(|group| group.offers.extend(u32::try_from(place)));
            compiled.by_code.insert(ad.head.code, place);
            let offer = family.offer(ad, number, &compiled.questions);
            compiled.has_strict |= offer.strict;
            compiled.offers.push(offer);
        }
        compiled.counter = Counter::new(compiled.offers.iter().map(|offer| offer.entity));
        for (place, offer) in compiled.offers.iter_mut().enumerate() {
            let places = compiled.counter.places(place).unwrap_or_default();
            let at =
                |level| Level::ALL.into_iter().zip(places).find(|(of, _)| *of == level).map_or(0, |(_, place)| place);
            offer.bounds.iter_mut().for_each(|bound| bound.place = at(bound.level));
        }
        compiled
    }

    /// The ad of a code.
    #[must_use]
    pub fn ad(&self, code: u32) -> Option<&Offer> {
        self.offers.get(self.place_of(code)?)
    }

    /// Whether any ad is under strict caps.
    #[must_use]
    pub fn has_strict(&self) -> bool {
        self.has_strict
    }

    /// The place in [`Self::offers`] of a code's ad.
    #[must_use]
    pub fn place_of(&self, code: u32) -> Option<usize> {
        self.by_code.get(&code).copied()
    }
}

impl Limited {
    fn of(campaign: &FlatCampaign) -> Option<Self> {
        let FlatCampaign { head, recipients, .. } = campaign;
        Some(Self { campaign: head.code, id: head.id.clone(), recipients: (*recipients)? })
    }
}

/// What all ads of a group have from it and from what it belongs to.
struct Family {
    ids: [Arc<str>; 3],
    codes: [u32; 3],
    terms: usize,
    targets: [Option<u32>; 2],
    arms: Vec<FlatArm>,
    strict: bool,
    bounds: Vec<Bound>,
}

impl Family {
    fn of(
        group: &FlatGroup,
        campaigns: &[FlatCampaign],
        advertisers: &[FlatAdvertiser],
        questions: &[(Verb, Window)],
    ) -> Option<Self> {
        let campaign = campaigns.get(group.campaign as usize)?;
        let advertiser = advertisers.get(campaign.advertiser as usize)?;
        let heads = [&group.head, &campaign.head, &advertiser.head];
        let levels = [Level::AdGroup, Level::Campaign, Level::Advertiser];
        let bounds = levels.into_iter().zip(heads).flat_map(|(level, head)| bounds(level, head, questions));
        Some(Self {
            ids: heads.map(|head| head.id.as_str().into()),
            codes: heads.map(|head| head.code),
            terms: group.campaign as usize,
            targets: [campaign.target, group.target],
            arms: [campaign.head.arm, group.head.arm].into_iter().flatten().collect(),
            strict: campaign.strict,
            bounds: bounds.collect(),
        })
    }

    /// Of its ads of an arm.
    fn group(&self, arm: Option<FlatArm>) -> Group {
        let mut arms = self.arms.clone();
        arms.extend(arm);
        // An experiment is named once where the levels agree.
        arms.sort_unstable();
        arms.dedup();
        Group { terms: self.terms, targets: self.targets, arms, offers: Vec::new() }
    }

    fn offer(&self, ad: FlatAd, group: usize, questions: &[(Verb, Window)]) -> Offer {
        let [ad_group, campaign, advertiser] = self.codes;
        let [of_group, of_campaign, of_advertiser] = self.ids.clone();
        let mut bounds: Vec<Bound> = bounds(Level::Ad, &ad.head, questions).collect();
        bounds.extend(&self.bounds);
        let capped = bounds.iter().any(|bound| bound.cap.verb == Verb::IMPRESSION);
        Offer {
            entity: Entity { ad: ad.head.code, ad_group, campaign, advertiser },
            ids: [ad.head.id.into(), of_group, of_campaign, of_advertiser],
            creative: ad.creative,
            landing: ad.landing,
            sizes: ad.sizes,
            terms: self.terms,
            group,
            strict: self.strict && capped,
            bounds,
        }
    }
}

fn bounds(level: Level, head: &Head, questions: &[(Verb, Window)]) -> impl Iterator<Item = Bound> {
    head.caps.iter().filter_map(move |(question, limit)| {
        let question = *question as usize;
        let (verb, window) = *questions.get(question)?;
        Some(Bound { level, cap: Cap { verb, limit: *limit, window }, question, place: 0 })
    })
}

fn terms(campaign: &FlatCampaign, advertisers: &[FlatAdvertiser]) -> Terms {
    Terms {
        campaign: campaign.head.code,
        runs: campaign.runs.clone(),
        bid: campaign.bid,
        roadblock: campaign.roadblock,
        repeats: advertisers.get(campaign.advertiser as usize).is_some_and(|advertiser| advertiser.repeats),
        paced: campaign.paced,
        limited: campaign.recipients.is_some(),
        categories: campaign.categories.iter().map(|category| *category as usize).collect(),
    }
}

impl Offer {
    /// Whether it fits one of these sizes, or either names none.
    #[must_use]
    pub fn fits(&self, sizes: &[[u32; 2]]) -> bool {
        self.sizes.is_empty() || sizes.is_empty() || self.sizes.iter().any(|size| sizes.contains(size))
    }
}
