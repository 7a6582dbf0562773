//! The catalogue as a decision needs it: the ads in the order of their choice, each with all caps that bind it.

use bytestring::ByteString;

use super::Bid;
use super::flat::{FlatAd, FlatAdvertiser, FlatArm, FlatCampaign, FlatCatalogue, FlatGroup};
use crate::base::ids::Millis;
use crate::facts::actions::{ActionCounter, ActionType, AdEntity, AdLevel, FrequencyCap, TimeWindow};
use crate::facts::offer_slots::RecipientLimit;
use crate::targeting::experiment::Experiment;
use crate::targeting::filter::{FilterIndex, FilterMatches};

/// A catalogue without problems, compiled. Made once, read by every decision.
#[derive(Debug, Clone, Default)]
pub struct CompiledCatalogue {
    /// The ads by weight, the heaviest first, then by code.
    pub offers: Vec<CandidateAd>,
    /// What their campaigns agreed on, in the order of the catalogue's.
    pub terms: Vec<CampaignTerms>,
    /// Their ad groups that have ads.
    pub groups: Vec<AdSet>,
    /// The different filters of campaigns and ad groups, each once.
    pub targets: FilterIndex,
    /// What the caps ask of a person's actions, each pair once.
    pub questions: Vec<(ActionType, TimeWindow)>,
    /// Counts for all ads, in their order.
    pub counter: ActionCounter,
    /// What is tested.
    pub experiments: Vec<Experiment>,
    /// The campaigns that have only so many recipients.
    pub limited: Vec<OfferLimit>,
    caps: Vec<Vec<(FrequencyCap, usize)>>,
    sizes: Vec<Vec<[u32; 2]>>,
    /// The ads' codes in order, and the place of each.
    by_code: Vec<(u32, u32)>,
    has_strict: bool,
}

/// An ad that may be placed.
#[derive(Debug, Clone, PartialEq)]
pub struct CandidateAd {
    /// Its code, and those of what it belongs to.
    pub entity: AdEntity,
    /// The ids at [`AdLevel::ALL`].
    pub ids: [ByteString; 4],
    /// What the page shows, as JSON.
    pub creative: ByteString,
    /// Where a click leads.
    pub landing: ByteString,
    /// The place of its campaign's in [`CompiledCatalogue::terms`].
    pub terms: usize,
    /// The place of its ad group in [`CompiledCatalogue::groups`].
    pub group: usize,
    /// Whether its campaign's caps are strict, and there is one on impressions, which alone can be.
    pub strict: bool,
    sizes: Option<u32>,
    /// Its caps at [`AdLevel::ALL`].
    caps: [Option<u32>; 4],
    /// The places in [`CompiledCatalogue::counter`] of its entities at [`AdLevel::ALL`].
    places: [u32; 4],
}

/// The ads of one ad group, and of one arm: what they share is asked once for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdSet {
    /// The place of its campaign's in [`CompiledCatalogue::terms`].
    pub terms: usize,
    /// The places in [`CompiledCatalogue::targets`] of its campaign's filter and of its own, which must match. They lie here and not
    /// behind a pointer: a decision asks this of all groups.
    pub targets: [Option<u32>; 2],
    /// The arms that a person must all be in.
    pub arms: Vec<FlatArm>,
    /// The places of its ads in [`CompiledCatalogue::offers`].
    pub offers: Vec<u32>,
}

impl AdSet {
    /// Whether its filters are among those that match.
    #[must_use]
    pub fn is_for(&self, matches: &FilterMatches) -> bool {
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
pub struct CampaignTerms {
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
pub struct OfferLimit {
    /// Its code.
    pub campaign: u32,
    /// Its id, by which people are drawn.
    pub id: String,
    /// How many.
    pub recipients: RecipientLimit,
}

/// A cap at one of an ad's levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundCap {
    /// Of what.
    pub level: AdLevel,
    /// How much.
    pub cap: FrequencyCap,
    /// The place of its verb and window in [`CompiledCatalogue::questions`].
    pub question: usize,
    /// The place in [`CompiledCatalogue::counter`] of what is counted.
    pub place: u32,
}

impl CompiledCatalogue {
    /// Compiles a catalogue as it travels.
    #[must_use]
    pub fn of(flat: FlatCatalogue) -> Self {
        let FlatCatalogue { questions, filters, caps, sizes, advertisers, campaigns, groups, ads, experiments } = flat;
        let targets = FilterIndex::new(&filters.into_iter().map(Some).collect::<Vec<_>>());
        let terms = campaigns.iter().map(|campaign| terms(campaign, &advertisers)).collect();
        let limited = campaigns.iter().filter_map(OfferLimit::of).collect();
        let cap = |&(question, limit): &(u32, u32)| {
            let (verb, window) = *questions.get(question as usize)?;
            Some((FrequencyCap { verb, limit, window }, question as usize))
        };
        let caps = caps.iter().map(|caps| caps.iter().filter_map(cap).collect()).collect();
        let mut compiled = Self { terms, targets, questions, experiments, limited, caps, sizes, ..Self::default() };
        let mut families: Vec<Option<AdFamily>> =
            groups.iter().map(|group| AdFamily::of(group, &campaigns, &advertisers)).collect();
        compiled.offers.reserve(ads.len());
        compiled.counter = ActionCounter::with_room(ads.len());
        for ad in ads {
            let Some(Some(family)) = families.get_mut(ad.group as usize) else { continue };
            let group = family.group_of(ad.head.arm, &mut compiled.groups);
            let Ok(place) = u32::try_from(compiled.offers.len()) else { break };
            compiled.groups.iter_mut().skip(group).take(1).for_each(|group| group.offers.push(place));
            compiled.by_code.push((ad.head.code, place));
            let offer = family.offer(ad, group, &compiled.caps, &mut compiled.counter);
            compiled.has_strict |= offer.strict;
            compiled.offers.push(offer);
        }
        compiled.by_code.sort_unstable();
        compiled
    }

    /// All caps that bind an ad, from the ad up.
    pub fn bounds(&self, offer: &CandidateAd) -> impl Iterator<Item = BoundCap> {
        let levels = AdLevel::ALL.into_iter().zip(offer.caps).zip(offer.places);
        levels.flat_map(|((level, caps), place)| {
            let caps = listed(&self.caps, caps).iter();
            caps.map(move |&(cap, question)| BoundCap { level, cap, question, place })
        })
    }

    /// Whether an ad fits one of these sizes, or either names none.
    #[must_use]
    pub fn fits(&self, offer: &CandidateAd, sizes: &[[u32; 2]]) -> bool {
        let Some(comes_in) = offer.sizes else { return true };
        sizes.is_empty() || listed(&self.sizes, Some(comes_in)).iter().any(|size| sizes.contains(size))
    }

    /// The ad of a code.
    #[must_use]
    pub fn ad(&self, code: u32) -> Option<&CandidateAd> {
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
        let at = self.by_code.binary_search_by_key(&code, |(code, _)| *code).ok()?;
        self.by_code.get(at).map(|(_, place)| *place as usize)
    }
}

impl OfferLimit {
    fn of(campaign: &FlatCampaign) -> Option<Self> {
        let FlatCampaign { head, recipients, .. } = campaign;
        Some(Self { campaign: head.code, id: head.id.to_string(), recipients: (*recipients)? })
    }
}

/// What all ads of a group have from it and from what it belongs to.
struct AdFamily {
    ids: [ByteString; 3],
    codes: [u32; 3],
    caps: [Option<u32>; 3],
    terms: usize,
    targets: [Option<u32>; 2],
    arms: Vec<FlatArm>,
    strict: bool,
    /// The places in [`CompiledCatalogue::groups`] of those of its ads, by their arm.
    groups: Vec<(Option<FlatArm>, usize)>,
}

impl AdFamily {
    fn of(group: &FlatGroup, campaigns: &[FlatCampaign], advertisers: &[FlatAdvertiser]) -> Option<Self> {
        let campaign = campaigns.get(group.campaign as usize)?;
        let advertiser = advertisers.get(campaign.advertiser as usize)?;
        let heads = [&group.head, &campaign.head, &advertiser.head];
        Some(Self {
            ids: heads.map(|head| head.id.clone()),
            codes: heads.map(|head| head.code),
            caps: heads.map(|head| head.caps),
            terms: group.campaign as usize,
            targets: [campaign.target, group.target],
            arms: [campaign.head.arm, group.head.arm].into_iter().flatten().collect(),
            strict: campaign.strict,
            groups: Vec::new(),
        })
    }

    /// The place of its ads of an arm, which is made where it is not there.
    fn group_of(&mut self, arm: Option<FlatArm>, groups: &mut Vec<AdSet>) -> usize {
        if let Some((_, place)) = self.groups.iter().find(|(of, _)| *of == arm) {
            return *place;
        }
        let mut arms = self.arms.clone();
        arms.extend(arm);
        // An experiment is named once where the levels agree.
        arms.sort_unstable();
        arms.dedup();
        self.groups.push((arm, groups.len()));
        groups.push(AdSet { terms: self.terms, targets: self.targets, arms, offers: Vec::new() });
        groups.len() - 1
    }

    fn offer(
        &self,
        ad: FlatAd,
        group: usize,
        caps: &[Vec<(FrequencyCap, usize)>],
        counter: &mut ActionCounter,
    ) -> CandidateAd {
        let FlatAd { head, sizes, creative, landing, .. } = ad;
        let [ad_group, campaign, advertiser] = self.codes;
        let [of_group, of_campaign, of_advertiser] = self.ids.clone();
        let [by_group, by_campaign, by_advertiser] = self.caps;
        let entity = AdEntity { ad: head.code, ad_group, campaign, advertiser };
        let all = [head.caps, by_group, by_campaign, by_advertiser];
        let limits_impressions =
            |list: Option<u32>| listed(caps, list).iter().any(|(cap, _)| cap.verb == ActionType::IMPRESSION);
        CandidateAd {
            entity,
            ids: [head.id, of_group, of_campaign, of_advertiser],
            creative,
            landing,
            terms: self.terms,
            group,
            strict: self.strict && all.into_iter().any(limits_impressions),
            sizes,
            caps: all,
            places: counter.add(entity),
        }
    }
}

/// The list of a place; an empty one for none.
fn listed<T>(lists: &[Vec<T>], place: Option<u32>) -> &[T] {
    place.and_then(|place| lists.get(place as usize)).map_or(&[], Vec::as_slice)
}

fn terms(campaign: &FlatCampaign, advertisers: &[FlatAdvertiser]) -> CampaignTerms {
    CampaignTerms {
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

impl CandidateAd {
    /// The levels at which caps bind it.
    pub fn capped_at(&self) -> impl Iterator<Item = AdLevel> {
        AdLevel::ALL.into_iter().zip(self.caps).filter_map(|(level, caps)| caps.map(|_| level))
    }

    /// Whether any cap binds it.
    #[must_use]
    pub fn is_capped(&self) -> bool {
        self.capped_at().next().is_some()
    }
}
