//! The decision: which ads of a catalogue are placed on one page in front of one person.
//!
//! Each placement gets the ad of the greatest value (in micros per thousand impressions) among those that fit its size,
//! match the targeting, and are under all caps; ties follow the catalogue's order. An ad placed earlier on the page
//! counts for later placements: as an impression, for its advertiser, and for its competitive categories. Equal inputs
//! give equal answers: the random part of pacing uses the draw that the call passes in. No state remains between calls.
//!
//! Conditions on the kind of placement are evaluated once per call ([`PlacementKind`]); each placement then walks over
//! the remaining ads.

mod ad_outcome;
mod described_person;
mod page;
mod placement_kind;
#[cfg(test)]
mod tests;
mod worth;

use std::collections::{BTreeMap, BTreeSet};

use crate::ads::allocation::TrafficAllocation;
use crate::ads::catalogue::{AdSet, BoundCap, CampaignTerms, CandidateAd, CompiledCatalogue};
use crate::base::ids::Millis;
use crate::base::time::Minute;
use crate::facts::actions::{self, ActionType, AdEntity, PackedActions, ViewType, ViewTypes};
use crate::profiles::profile::{MissingParts, ProfileTotals};
use crate::profiles::view::PersonView;
use crate::targeting::filter::{EventEvidence, FilterSubject, PersonHistory};

pub use ad_outcome::{AdOutcome, NoAd};
pub use described_person::DescribedPerson;
use page::OnPage;
use placement_kind::{PlacementCandidate, PlacementKind};
use worth::AdWorth;
pub use worth::{CTR_PPB, CVR_PPB, ModelScores, PRICE_MICROS};

/// Person that the ads of a page are decided for.
#[derive(Debug, Clone, Default)]
pub struct DecidedPerson<'a> {
    /// Actions of each visitor that counts ([`PersonView::actions`]), followed by the reservations of the request's own
    /// visitor ([`PersonView::reserved`]) as if of one more visitor. An insertion in both counts once.
    pub actions: Vec<PackedActions<'a>>,
    /// Sums over all these visitors.
    pub totals: ProfileTotals,
    /// Parts of the actions and sums that may be missing ([`PersonView::missing`]).
    pub missing: MissingParts,
    /// View of the visitors that count, with the times of their events; `None` if no filter needs them.
    pub counted: Option<&'a PersonView<'a>>,
    /// The person's arm in each experiment ([`crate::targeting::experiment::arms`]); empty if the person takes part in
    /// none.
    pub arms: Vec<Option<u8>>,
    /// Offer codes of limited offers that the person has or may get, by campaign code; empty if the person's actions
    /// are not counted.
    pub offer_codes: BTreeMap<u32, Holding>,
}

impl DecidedPerson<'_> {
    fn events(&self) -> EventEvidence<'_> {
        self.counted.map_or(EventEvidence::Nothing, EventEvidence::Snapshots)
    }
}

/// Standing of a person towards a campaign with a limited number of recipients. A person who is no recipient has no
/// entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// The person has the offer code with this number.
    Has(u32),
    /// The person may get an offer code: the offer's object must be asked.
    May,
}

/// A place on the page for which the call asks for an ad.
#[derive(Debug, Clone, Copy, Default)]
pub struct Placement<'a> {
    /// Accepted sizes, width and height; empty for any size.
    pub sizes: &'a [[u32; 2]],
    /// View type of the placement.
    pub view_type: ViewType,
    /// Smallest value of a thousand impressions that may be placed, in micros.
    pub floor_micros: u64,
}

/// Inputs of a decision other than the catalogue, the person and the page.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecisionInputs<'a> {
    /// Time of the call.
    pub now: Millis,
    /// Scores of the click and conversion model. Without them, clicks and conversions have default rates ([`CTR_PPB`],
    /// [`CVR_PPB`]).
    pub scores: Option<&'a ModelScores>,
    /// Traffic allocation and paces from the origin; without them no campaign with a budget takes part.
    pub allocation: Option<&'a TrafficAllocation>,
    /// Random bits of the call.
    pub draw: u64,
    /// Codes of the ads that the page already shows, in the order of their placement.
    pub shown: &'a [u32],
    /// Whether ads with caps are not placed while the number of their impressions is unknown.
    pub holds_caps: bool,
    /// Whether to record the data that leaves targeting unknown ([`PageDecision::unknown_fields`]).
    pub explains: bool,
}

/// Outcome for one placement: the ad's index in [`CompiledCatalogue::offers`], or the reason why there is no ad.
pub type PlacementOutcome = Result<usize, NoAd>;

/// The question of one call, with everything that does not depend on object calls already computed.
#[derive(Debug)]
pub struct PageDecision<'a> {
    catalogue: &'a CompiledCatalogue,
    given: DecisionInputs<'a>,
    /// Counts by question of the catalogue, then by index of its counter; `None` without a person.
    counts: Option<Vec<Vec<u32>>>,
    /// Whether ads with caps are not placed because [`Self::counts`] may lack actions.
    holds_caps: bool,
    /// The person's arms; empty without a person.
    arms: Vec<Option<u8>>,
    /// Offer codes that the person has or may get; `None` without a person.
    offer_codes: Option<BTreeMap<u32, Holding>>,
    /// The kinds of the placements, each once.
    kinds: Vec<PlacementKind>,
    placements: Vec<Placement<'a>>,
}

impl<'a> PageDecision<'a> {
    /// Question for these placements, in order. Without a person, no ad with caps is placed. `subject` describes the
    /// person and the page; its view type and counts are filled in here.
    #[must_use]
    pub fn new(
        catalogue: &'a CompiledCatalogue,
        person: Option<&DecidedPerson<'_>>,
        subject: &FilterSubject<'_>,
        placements: Vec<Placement<'a>>,
        given: DecisionInputs<'a>,
    ) -> Self {
        let minute = Minute::at(given.now);
        let history = |person: &DecidedPerson<'_>| {
            let history = PersonHistory {
                totals: person.totals,
                actions: &person.actions,
                events: person.events(),
                missing: person.missing,
            };
            catalogue.targets.answers(&history, minute)
        };
        let answers = person.map(history).unwrap_or_default();
        let worth = AdWorth::new(catalogue, given.scores, person, subject, given.now);
        let arms = person.map(|person| person.arms.clone()).unwrap_or_default();
        let offer_codes = person.map(|person| person.offer_codes.clone());
        let mut kinds: Vec<PlacementKind> = Vec::new();
        for Placement { view_type, .. } in &placements {
            if kinds.iter().all(|known| known.view_type != *view_type) {
                let subject = FilterSubject { view_type: *view_type, counts: &answers, ..*subject };
                kinds.push(PlacementKind::new(catalogue, &worth, &subject, person, &given));
            }
        }
        let counts = person.map(|person| counts(catalogue, person, minute));
        let uncounted = MissingParts::ACTIONS.union(MissingParts::MEMBERS);
        let holds_caps = given.holds_caps && person.is_some_and(|person| person.missing.overlaps(uncounted));
        Self { catalogue, given, counts, holds_caps, arms, offer_codes, kinds, placements }
    }

    /// Ads under strict caps that may be placed, for each placement in order of preference. The list ends before the
    /// first ad that needs no object call, so that a granted ad is also placed. An ad that still needs an offer code
    /// comes last if `empty` reports its campaign's offer as sold out.
    #[must_use]
    pub fn strict(&self, empty: impl Fn(u32) -> bool) -> Vec<Vec<usize>> {
        let is_last = |offer: &CandidateAd| self.awaits_offer_code(offer) && empty(offer.entity.campaign);
        self.filled(|page| self.strict_choices(page, &is_last)).0
    }

    fn strict_choices(&self, page: &mut OnPage<'a>, is_last: &dyn Fn(&CandidateAd) -> bool) -> Vec<Vec<usize>> {
        let mut each = Vec::with_capacity(self.placements.len());
        for placement in &self.placements {
            let free = self.best(placement, page, |_, offer| !offer.strict && !self.awaits_offer_code(offer));
            let before =
                |candidate: &PlacementCandidate| free.is_none_or(|free| candidate.sort_key() < free.sort_key());
            let strict = |candidate: &&PlacementCandidate| {
                let offer = self.catalogue.offers.get(candidate.index());
                offer.is_some_and(|offer| offer.strict && before(candidate) && self.admits(placement, offer, page))
            };
            let fits_floor = |candidate: &&PlacementCandidate| candidate.worth >= placement.floor_micros;
            let all = self.candidates(placement).iter().filter(fits_floor);
            let mut choices: Vec<PlacementCandidate> = all.filter(strict).copied().collect();
            let last =
                |candidate: &PlacementCandidate| self.catalogue.offers.get(candidate.index()).is_some_and(is_last);
            choices.sort_by_key(|candidate| (last(candidate), candidate.sort_key()));
            let first = choices.first().copied().or(free);
            page.placed.extend(first.and_then(|first| self.catalogue.offers.get(first.index())));
            each.push(choices.into_iter().map(PlacementCandidate::index).collect());
            if self.is_in_vain(page, each.len()) {
                break;
            }
        }
        each
    }

    /// Decides all placements. `granted` holds, for each placement, the ad under strict caps that the person's object
    /// granted; `None` if the object was not asked or did not answer.
    #[must_use]
    pub fn decide(&self, granted: Option<&[Option<usize>]>) -> Vec<PlacementOutcome> {
        self.walk(granted, false).0
    }

    /// Campaign of the first ad that would be placed if the person had an offer code, which the person may get; the
    /// object of that offer is asked. At most one campaign per call.
    #[must_use]
    pub fn wants_offer_code(&self, granted: Option<&[Option<usize>]>) -> Option<u32> {
        let may = |campaign: &u32| self.holding(*campaign) == Some(Holding::May);
        let (decided, _) = self.walk(granted, true);
        decided.into_iter().filter_map(|won| Some(self.offer_of(won)?.entity.campaign)).find(may)
    }

    /// Number of the offer code that an ad shows; `None` if the campaign has no offer codes or the person has none yet.
    #[must_use]
    pub fn offer_code(&self, offer: &CandidateAd) -> Option<u32> {
        match self.holding(offer.entity.campaign)? {
            Holding::Has(number) => Some(number),
            Holding::May => None,
        }
    }

    fn holding(&self, campaign: u32) -> Option<Holding> {
        self.offer_codes.as_ref()?.get(&campaign).copied()
    }

    /// The person's arms by experiment index; empty if the person takes part in none.
    #[must_use]
    pub fn arms(&self) -> &[Option<u8>] {
        &self.arms
    }

    /// Indexes of the experiments to which this page exposes the person. A page belongs to an experiment if any arm has
    /// an ad that fits a placement's size, is in its run time, and matches the targeting. The person's own arm, the
    /// ad's value, caps and other ads of the page have no influence, so that all arms, including the control, are
    /// exposed alike.
    #[must_use]
    pub fn exposing_experiments(&self) -> BTreeSet<usize> {
        let runs =
            |group: &AdSet| self.catalogue.terms.get(group.terms).is_some_and(|t| t.runs.contains(&self.given.now));
        let fits = |placement: &Placement<'_>, group: &AdSet| {
            let fits = |place: &u32| {
                self.catalogue.offers.get(*place as usize).is_some_and(|o| self.catalogue.fits(o, placement.sizes))
            };
            self.kind(placement).is_some_and(|kind| group.is_for(&kind.matches)) && group.offers.iter().any(fits)
        };
        let met = |group: &&AdSet| runs(group) && self.placements.iter().any(|placement| fits(placement, group));
        let tested = self.catalogue.groups.iter().filter(|group| !group.arms.is_empty());
        tested.filter(met).flat_map(|group| &group.arms).map(|(place, _)| *place as usize).collect()
    }

    /// Value of a thousand impressions of each of [`CompiledCatalogue::offers`] on a placement, in micros; `None` for
    /// an ad that does not match.
    #[must_use]
    pub fn worths(&self, number: usize) -> Vec<Option<u64>> {
        self.placements.get(number).map(|placement| self.worths_on(placement)).unwrap_or_default()
    }

    fn worths_on(&self, placement: &Placement<'_>) -> Vec<Option<u64>> {
        let mut worths = vec![None; self.catalogue.offers.len()];
        for candidate in self.candidates(placement) {
            worths.iter_mut().skip(candidate.index()).take(1).for_each(|worth| *worth = Some(candidate.worth));
        }
        worths
    }

    /// Value of a thousand impressions of an ad on a placement, in micros; 0 for an ad that does not match.
    #[must_use]
    pub fn worth(&self, number: usize, place: usize) -> u64 {
        let candidates = self.placements.get(number).map(|placement| self.candidates(placement)).unwrap_or_default();
        candidates.iter().find(|candidate| candidate.index() == place).map_or(0, |candidate| candidate.worth)
    }

    /// Decides placement after placement. `hoping`: as if the person had every offer code that it may get.
    fn walk(&self, granted: Option<&[Option<usize>]>, hoping: bool) -> (Vec<PlacementOutcome>, Vec<usize>) {
        self.filled(|page| {
            let mut decided = Vec::with_capacity(self.placements.len());
            for (number, placement) in self.placements.iter().enumerate() {
                let granted = of_placement(granted, number);
                let may = |place: usize, offer: &CandidateAd| {
                    (!offer.strict || granted == Some(Some(place))) && (hoping || !self.awaits_offer_code(offer))
                };
                let won =
                    self.best(placement, page, may).map(PlacementCandidate::index).ok_or_else(|| self.no_ad(placement));
                page.placed.extend(self.offer_of(won));
                decided.push(won);
                if self.is_in_vain(page, decided.len()) {
                    break;
                }
            }
            decided
        })
    }

    /// Runs `come` on a page, and again each time a roadblock turns out not to fill the page, without that campaign.
    /// Returns the result and the excluded campaigns.
    fn filled<T>(&self, come: impl Fn(&mut OnPage<'a>) -> T) -> (T, Vec<usize>) {
        let mut page = self.shown_page();
        loop {
            let of = come(&mut page);
            match page.placed.first().filter(|_| self.is_in_vain(&page, self.placements.len())) {
                Some(first) => {
                    if page.barred.is_empty() {
                        page.barred = self.hopeless();
                    }
                    if let Err(place) = page.barred.binary_search(&first.terms) {
                        page.barred.insert(place, first.terms);
                    }
                }
                None => return (of, page.barred),
            }
            page.placed.clear();
        }
    }

    /// Roadblock campaigns that cannot fill the page in any case, in order: they lack an ad for one of the placements,
    /// or have fewer ads than there are placements. Campaigns without any candidate are never tried and are left out.
    /// Excluding these campaigns in advance saves one run for each.
    fn hopeless(&self) -> Vec<usize> {
        let mut each = vec![(0, 0); self.catalogue.terms.len()];
        let mut met = vec![false; self.catalogue.offers.len()];
        let page = OnPage::default();
        for (number, placement) in self.placements.iter().enumerate() {
            for candidate in self.candidates(placement).iter().filter(|of| of.worth >= placement.floor_micros) {
                let place = candidate.index();
                let Some((offer, met)) = self.catalogue.offers.get(place).zip(met.get_mut(place)) else { continue };
                let Some((placements, ads)) = each.get_mut(offer.terms) else { continue };
                if self.fills(offer) && self.admits(placement, offer, &page) {
                    *placements = if *placements == number { number + 1 } else { *placements };
                    *ads += usize::from(!std::mem::replace(met, true));
                }
            }
        }
        let all = self.placements.len();
        let hopeless = |terms: &CampaignTerms, (placements, ads): (usize, usize)| {
            terms.roadblock && ads > 0 && placements.min(ads) < all
        };
        let terms = self.catalogue.terms.iter().zip(each).enumerate();
        terms.filter(|(_, (terms, each))| hopeless(terms, *each)).map(|(place, _)| place).collect()
    }

    /// Whether the person may get an offer code for this ad but has none yet.
    fn awaits_offer_code(&self, offer: &CandidateAd) -> bool {
        self.holding(offer.entity.campaign) == Some(Holding::May)
    }

    fn offer_of(&self, decided: PlacementOutcome) -> Option<&'a CandidateAd> {
        self.catalogue.offers.get(decided.ok()?)
    }

    fn kind(&self, placement: &Placement<'_>) -> Option<&PlacementKind> {
        self.kinds.iter().find(|kind| kind.view_type == placement.view_type)
    }

    fn candidates(&self, placement: &Placement<'_>) -> &[PlacementCandidate] {
        self.kind(placement).map_or(&[], |kind| &kind.candidates)
    }

    /// The ad of the greatest value among those that may be placed.
    fn best(
        &self,
        placement: &Placement<'_>,
        page: &OnPage<'_>,
        may: impl Fn(usize, &CandidateAd) -> bool,
    ) -> Option<PlacementCandidate> {
        let mut best: Option<PlacementCandidate> = None;
        for candidate in self.candidates(placement) {
            let better = best.is_none_or(|best| candidate.sort_key() < best.sort_key());
            if better
                && candidate.worth >= placement.floor_micros
                && let Some(offer) = self.catalogue.offers.get(candidate.index())
                && may(candidate.index(), offer)
                && self.admits(placement, offer, page)
            {
                best = Some(*candidate);
            }
        }
        best
    }

    /// Whether an ad's size, the page so far and its caps allow the placement.
    fn admits(&self, placement: &Placement<'_>, offer: &CandidateAd, page: &OnPage<'_>) -> bool {
        self.catalogue.fits(offer, placement.sizes)
            && self.terms(offer).is_some_and(|terms| self.on_page(offer, terms, page).is_none())
            && self.reached_cap(offer, page).is_none()
    }

    fn no_ad(&self, placement: &Placement<'_>) -> NoAd {
        let CompiledCatalogue { offers, .. } = self.catalogue;
        let fits = |candidate: &PlacementCandidate| {
            candidate.worth >= placement.floor_micros
                && offers.get(candidate.index()).is_some_and(|offer| self.catalogue.fits(offer, placement.sizes))
        };
        if offers.is_empty() {
            NoAd::NoCatalogue
        } else if self.candidates(placement).iter().any(fits) {
            NoAd::AllCapped
        } else if offers.iter().any(|offer| self.catalogue.fits(offer, placement.sizes)) {
            NoAd::NoneMatches
        } else {
            NoAd::NoSize
        }
    }

    fn terms(&self, offer: &CandidateAd) -> Option<&'a CampaignTerms> {
        self.catalogue.terms.get(offer.terms)
    }

    fn fills(&self, offer: &CandidateAd) -> bool {
        self.terms(offer).is_some_and(|terms| terms.roadblock)
    }

    fn reached_cap(&self, offer: &CandidateAd, page: &OnPage<'_>) -> Option<AdOutcome> {
        match &self.counts {
            _ if !offer.has_cap() => None,
            None => Some(AdOutcome::Anonymous),
            Some(_) if self.holds_caps => Some(AdOutcome::CountUnknown),
            Some(counts) => self.catalogue.bounds(offer).find_map(|bound| {
                let counted = *counts.get(bound.question)?.get(bound.place as usize)?;
                let counted = counted.saturating_add(placed_of(&page.placed, offer.entity, &bound));
                (!bound.cap.admits(counted)).then_some(AdOutcome::Capped(bound, counted))
            }),
        }
    }
}

impl DecisionInputs<'_> {
    /// Whether a campaign takes part in this call.
    fn lets(&self, terms: &CampaignTerms) -> bool {
        let paced = |allocation: &TrafficAllocation| allocation.lets(terms.campaign, self.draw, self.now);
        !terms.paced || self.allocation.is_some_and(paced)
    }
}

/// Grant for one placement; the outer `None` means that no object was asked.
fn of_placement(granted: Option<&[Option<usize>]>, number: usize) -> Option<Option<usize>> {
    granted.map(|granted| granted.get(number).copied().flatten())
}

/// Counts for all ads at all levels, with one pass over the actions for each question of the catalogue.
fn counts(catalogue: &CompiledCatalogue, person: &DecidedPerson<'_>, now: Minute) -> Vec<Vec<u32>> {
    let count = |(action_type, window): &(ActionType, actions::TimeWindow)| {
        let (from, to) = window.range(now);
        let question = actions::ActionQuestion { action_types: &[*action_type], view_types: ViewTypes::All, from, to };
        catalogue.counter.tally_rows(&person.actions, &question)
    };
    catalogue.questions.iter().map(count).collect()
}

/// Number of ads placed in this call that count for a cap.
fn placed_of(placed: &[&CandidateAd], entity: AdEntity, BoundCap { level, cap, .. }: &BoundCap) -> u32 {
    let same = placed.iter().filter(|placed| placed.entity.at(*level) == entity.at(*level)).count();
    if cap.action_type == ActionType::IMPRESSION { u32::try_from(same).unwrap_or(u32::MAX) } else { 0 }
}
