//! The catalogue in the form that a decision needs: the ads in order of preference, each with the caps that apply to
//! it.

use bytestring::ByteString;

use super::Bid;
use super::flat::{FlatAd, FlatAdvertiser, FlatArm, FlatCampaign, FlatCatalogue, FlatGroup};
use crate::base::ids::Millis;
use crate::facts::actions::{ActionCounter, ActionType, AdEntity, AdLevel, FrequencyCap, TimeWindow};
use crate::facts::offer_codes::RecipientLimit;
use crate::targeting::experiment::Experiment;
use crate::targeting::filter::{FilterIndex, FilterMatches};

/// A compiled catalogue without problems; compiled once, read by each decision.
#[derive(Debug, Clone, Default)]
pub struct CompiledCatalogue {
    /// The ads in order of preference: greatest weight first, then smallest code.
    pub offers: Vec<CandidateAd>,
    /// Terms of the campaigns, in the catalogue's order.
    pub terms: Vec<CampaignTerms>,
    /// The ad groups that have ads, split by arm.
    pub groups: Vec<AdSet>,
    /// The distinct filters of campaigns and ad groups.
    pub targets: FilterIndex,
    /// The distinct pairs of action type and window that caps count.
    pub questions: Vec<(ActionType, TimeWindow)>,
    /// Counter for all ads, in their order.
    pub counter: ActionCounter,
    /// The experiments.
    pub experiments: Vec<Experiment>,
    /// The campaigns with a limited number of recipients.
    pub limited: Vec<OfferLimit>,
    caps: Vec<Vec<(FrequencyCap, usize)>>,
    sizes: Vec<Vec<[u32; 2]>>,
    /// Codes of the ads in order, each with its index in `offers`.
    by_code: Vec<(u32, u32)>,
    has_strict: bool,
}

/// An ad that may be placed.
#[derive(Debug, Clone, PartialEq)]
pub struct CandidateAd {
    /// Codes of the ad and of its parents.
    pub entity: AdEntity,
    /// Ids at [`AdLevel::ALL`].
    pub ids: [ByteString; 4],
    /// Creative for the page, as JSON.
    pub creative: ByteString,
    /// Landing page of a click.
    pub landing: ByteString,
    /// Index of its campaign in [`CompiledCatalogue::terms`].
    pub terms: usize,
    /// Index of its ad set in [`CompiledCatalogue::groups`].
    pub group: usize,
    /// Whether the campaign's caps are strict and at least one of them counts impressions; other action types have no
    /// strict caps.
    pub strict: bool,
    sizes: Option<u32>,
    /// Indexes of its lists of caps at [`AdLevel::ALL`].
    caps: [Option<u32>; 4],
    /// Indexes of its entities in [`CompiledCatalogue::counter`], at [`AdLevel::ALL`].
    places: [u32; 4],
}

/// The ads of one ad group and one arm. Their common conditions are checked once for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdSet {
    /// Index of the campaign in [`CompiledCatalogue::terms`].
    pub terms: usize,
    /// Indexes in [`CompiledCatalogue::targets`] of the campaign's and the group's filter, which must both match. They
    /// are stored inline because a decision reads them for all groups.
    pub targets: [Option<u32>; 2],
    /// Arms in which a person must be; all of them are required.
    pub arms: Vec<FlatArm>,
    /// Indexes of the ads in [`CompiledCatalogue::offers`].
    pub offers: Vec<u32>,
}

impl AdSet {
    /// Whether both filters are among the matching ones.
    #[must_use]
    pub fn is_for(&self, matches: &FilterMatches) -> bool {
        self.targets.iter().flatten().all(|target| matches.contains(*target as usize))
    }

    /// Index of the first experiment whose required arm the person is not in; `None` if the person is in all. `arms`
    /// holds the person's arm by experiment index.
    #[must_use]
    pub fn outside(&self, arms: &[Option<u8>]) -> Option<usize> {
        let of = |place: u32| arms.get(place as usize).copied().flatten();
        self.arms.iter().find(|(place, arm)| of(*place) != Some(*arm)).map(|(place, _)| *place as usize)
    }
}

/// Terms of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CampaignTerms {
    /// The campaign's code.
    pub campaign: u32,
    /// Time in which its ads are placed, end exclusive.
    pub runs: std::ops::Range<Millis>,
    /// Price of the billed event.
    pub bid: Bid,
    /// Whether its ads fill either all placements of a page or none.
    pub roadblock: bool,
    /// Whether one page may show several ads of its advertiser.
    pub repeats: bool,
    /// Whether it has a budget, so that its pace limits the calls in which it takes part.
    pub paced: bool,
    /// Whether the number of its recipients is limited.
    pub limited: bool,
    /// Competitive categories, as indexes that stand for their names.
    pub categories: Vec<usize>,
}

/// A campaign with a limited number of recipients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferLimit {
    /// Code of the campaign.
    pub campaign: u32,
    /// Id of the campaign, from which recipients are drawn.
    pub id: String,
    /// The limit.
    pub recipients: RecipientLimit,
}

/// A cap that applies to an ad at one of its levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundCap {
    /// Level of the cap.
    pub level: AdLevel,
    /// The cap itself.
    pub cap: FrequencyCap,
    /// Index of its action type and window in [`CompiledCatalogue::questions`].
    pub question: usize,
    /// Index of the counted entity in [`CompiledCatalogue::counter`].
    pub place: u32,
}

impl CompiledCatalogue {
    /// Compiles a catalogue in the form in which it travels.
    #[must_use]
    pub fn of(flat: FlatCatalogue) -> Self {
        let FlatCatalogue { questions, filters, caps, sizes, advertisers, campaigns, groups, ads, experiments } = flat;
        let targets = FilterIndex::new(&filters.into_iter().map(Some).collect::<Vec<_>>());
        let terms = campaigns.iter().map(|campaign| terms(campaign, &advertisers)).collect();
        let limited = campaigns.iter().filter_map(OfferLimit::of).collect();
        let cap = |&(question, limit): &(u32, u32)| {
            let (action_type, window) = *questions.get(question as usize)?;
            Some((FrequencyCap { action_type, limit, window }, question as usize))
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

    /// All caps that apply to an ad, from the ad's level up.
    pub fn bounds(&self, offer: &CandidateAd) -> impl Iterator<Item = BoundCap> {
        let levels = AdLevel::ALL.into_iter().zip(offer.caps).zip(offer.places);
        levels.flat_map(|((level, caps), place)| {
            let caps = listed(&self.caps, caps).iter();
            caps.map(move |&(cap, question)| BoundCap { level, cap, question, place })
        })
    }

    /// Whether an ad has one of these sizes, or one of the two sides names no size.
    #[must_use]
    pub fn fits(&self, offer: &CandidateAd, sizes: &[[u32; 2]]) -> bool {
        let Some(comes_in) = offer.sizes else { return true };
        sizes.is_empty() || listed(&self.sizes, Some(comes_in)).iter().any(|size| sizes.contains(size))
    }

    /// The ad with a code.
    #[must_use]
    pub fn ad(&self, code: u32) -> Option<&CandidateAd> {
        self.offers.get(self.index_of(code)?)
    }

    /// Whether any ad is under strict caps.
    #[must_use]
    pub fn has_strict(&self) -> bool {
        self.has_strict
    }

    /// Index in [`Self::offers`] of the ad with a code.
    #[must_use]
    pub fn index_of(&self, code: u32) -> Option<usize> {
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

/// The properties that all ads of a group inherit from it and its parents.
struct AdFamily {
    ids: [ByteString; 3],
    codes: [u32; 3],
    caps: [Option<u32>; 3],
    terms: usize,
    targets: [Option<u32>; 2],
    arms: Vec<FlatArm>,
    strict: bool,
    /// Indexes in [`CompiledCatalogue::groups`] of its ad sets, by arm.
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

    /// Index of the ad set for an arm, which is created on first use.
    fn group_of(&mut self, arm: Option<FlatArm>, groups: &mut Vec<AdSet>) -> usize {
        if let Some((_, place)) = self.groups.iter().find(|(of, _)| *of == arm) {
            return *place;
        }
        let mut arms = self.arms.clone();
        arms.extend(arm);
        // An experiment that several levels name alike is listed once.
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
            |list: Option<u32>| listed(caps, list).iter().any(|(cap, _)| cap.action_type == ActionType::IMPRESSION);
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

/// The list at an index; an empty list for `None`.
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
    /// The levels that have caps.
    pub fn capped_at(&self) -> impl Iterator<Item = AdLevel> {
        AdLevel::ALL.into_iter().zip(self.caps).filter_map(|(level, caps)| caps.map(|_| level))
    }

    /// Whether any cap applies.
    #[must_use]
    pub fn has_cap(&self) -> bool {
        self.capped_at().next().is_some()
    }
}
