//! The decision: which ads of a catalogue are placed on one page, in front of one person.
//!
//! Every placement gets the ad worth most, in micros for a thousand impressions, of those that fit it, are meant for who
//! looks at what, and whose caps all hold; of two worth the same the one that comes first in the catalogue's order. What
//! is placed earlier on the page counts for the placements after it: as its impression, and against its advertiser and
//! what competes with it. The same inputs give the same answer: what is drawn at random, for budgets, comes of one draw that
//! the call brings. Nothing is remembered here.
//!
//! What holds for a kind of placement is asked once a call ([`PlacementKind`]); a placement walks over the ads that are left.

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

/// In front of whom ads are placed.
#[derive(Debug, Clone, Default)]
pub struct Person<'a> {
    /// The actions of each visitor that counts ([`PersonView::actions`]), and behind them the reservations of the
    /// request's own ([`PersonView::reserved`]) as one more visitor's: an insertion that both hold counts once.
    pub actions: Vec<PackedActions<'a>>,
    /// The sums over all of them.
    pub totals: ProfileTotals,
    /// What of the actions and the sums may be missing ([`PersonView::missing`]).
    pub missing: MissingParts,
    /// Who counts, which says when their events were; `None` where no filter is to know it.
    pub counted: Option<&'a PersonView<'a>>,
    /// The arms it is in ([`crate::targeting::experiment::arms`]); empty where nothing may be tested on it.
    pub arms: Vec<Option<u8>>,
    /// The units of limited offers that it may see, by the campaign's code; empty where nothing is counted of it.
    pub units: BTreeMap<u32, Holding>,
}

impl Person<'_> {
    fn events(&self) -> EventEvidence<'_> {
        self.counted.map_or(EventEvidence::Nothing, EventEvidence::Snapshots)
    }
}

/// How a person stands to a campaign that has only so many recipients; not at all is not being there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// It has the unit of this number.
    Has(u32),
    /// It may get one: an object is to be asked.
    May,
}

/// A place on the page that asks for an ad.
#[derive(Debug, Clone, Copy, Default)]
pub struct Placement<'a> {
    /// The sizes it takes, width and height; empty for any.
    pub sizes: &'a [[u32; 2]],
    /// Its kind.
    pub view_type: ViewType,
    /// What a thousand impressions must be worth, in micros.
    pub floor_micros: u64,
}

/// What a decision goes by beside the catalogue, the person and the page.
#[derive(Debug, Clone, Copy, Default)]
pub struct Given<'a> {
    /// The time.
    pub now: Millis,
    /// A model's; without one, what is paid for clicks and conversions is worth what is expected of them anywhere.
    pub scores: Option<&'a ModelScores>,
    /// How the origin steers traffic; without it no campaign with a budget takes part.
    pub steering: Option<&'a TrafficAllocation>,
    /// Random bits of the call.
    pub draw: u64,
    /// Codes of the ads that the page shows already, in the order they were placed.
    pub shown: &'a [u32],
    /// Whether ads with caps are held back while it is unknown how often they were seen.
    pub holds_caps: bool,
    /// Whether it is to be told which data leaves targeting unknown ([`ActionQuestion::unknown_fields`]).
    pub explains: bool,
}

/// What is decided for one placement: the ad's place in [`CompiledCatalogue::offers`], or why there is none.
pub type Decided = Result<usize, NoAd>;

/// A call's question, before it is decided or asked about.
#[derive(Debug)]
pub struct Question<'a> {
    catalogue: &'a CompiledCatalogue,
    given: Given<'a>,
    /// By question of the catalogue, then place of its counter; `None` without a person.
    counts: Option<Vec<Vec<u32>>>,
    /// Whether there may be actions that [`Self::counts`] lacks, and no ad with caps is placed for that reason.
    holds_caps: bool,
    /// The arms that the person is in; empty without one.
    arms: Vec<Option<u8>>,
    /// The units that it may see; `None` without a person.
    units: Option<BTreeMap<u32, Holding>>,
    /// Those that the placements are of, each once.
    kinds: Vec<PlacementKind>,
    placements: Vec<Placement<'a>>,
}

impl<'a> Question<'a> {
    /// For placements, in their order. Without a person no ad with caps is placed. `subject` is who looks at what; its
    /// kind of placement and its counts are filled in here.
    #[must_use]
    pub fn new(
        catalogue: &'a CompiledCatalogue,
        person: Option<&Person<'_>>,
        subject: &FilterSubject<'_>,
        placements: Vec<Placement<'a>>,
        given: Given<'a>,
    ) -> Self {
        let minute = Minute::at(given.now);
        let history = |person: &Person<'_>| {
            let history = PersonHistory {
                totals: person.totals,
                actions: &person.actions,
                events: person.events(),
                missing: person.missing,
            };
            catalogue.targets.answers(&history, minute)
        };
        let told = person.map(history).unwrap_or_default();
        let worth = AdWorth::new(catalogue, given.scores, person, subject, given.now);
        let arms = person.map(|person| person.arms.clone()).unwrap_or_default();
        let units = person.map(|person| person.units.clone());
        let mut kinds: Vec<PlacementKind> = Vec::new();
        for Placement { view_type, .. } in &placements {
            if kinds.iter().all(|known| known.view_type != *view_type) {
                let subject = FilterSubject { view_type: *view_type, counts: &told, ..*subject };
                kinds.push(PlacementKind::new(catalogue, &worth, &subject, person, &given));
            }
        }
        let counts = person.map(|person| counts(catalogue, person, minute));
        let uncounted = MissingParts::ACTIONS.union(MissingParts::MEMBERS);
        let holds_caps = given.holds_caps && person.is_some_and(|person| person.missing.overlaps(uncounted));
        Self { catalogue, given, counts, holds_caps, arms, units, kinds, placements }
    }

    /// The ads under strict caps that may be placed, by placement, the first choice first: as many as come before the
    /// first ad that needs no asking, so that what is granted is also placed. One whose person awaits a unit may get none: where
    /// its offer is said to be `empty`, by campaign, it comes last.
    #[must_use]
    pub fn strict(&self, empty: impl Fn(u32) -> bool) -> Vec<Vec<usize>> {
        let is_last = |offer: &CandidateAd| self.awaits_unit(offer) && empty(offer.entity.campaign);
        self.filled(|page| self.strict_choices(page, &is_last)).0
    }

    fn strict_choices(&self, page: &mut OnPage<'a>, is_last: &dyn Fn(&CandidateAd) -> bool) -> Vec<Vec<usize>> {
        let mut each = Vec::with_capacity(self.placements.len());
        for placement in &self.placements {
            let free = self.best(placement, page, |_, offer| !offer.strict && !self.awaits_unit(offer));
            let before = |candidate: &PlacementCandidate| free.is_none_or(|free| candidate.rank() < free.rank());
            let strict = |candidate: &&PlacementCandidate| {
                let offer = self.catalogue.offers.get(candidate.place());
                offer.is_some_and(|offer| offer.strict && before(candidate) && self.admits(placement, offer, page))
            };
            let fits_floor = |candidate: &&PlacementCandidate| candidate.worth >= placement.floor_micros;
            let all = self.candidates(placement).iter().filter(fits_floor);
            let mut choices: Vec<PlacementCandidate> = all.filter(strict).copied().collect();
            let last =
                |candidate: &PlacementCandidate| self.catalogue.offers.get(candidate.place()).is_some_and(is_last);
            choices.sort_by_key(|candidate| (last(candidate), candidate.rank()));
            let first = choices.first().copied().or(free);
            page.placed.extend(first.and_then(|first| self.catalogue.offers.get(first.place())));
            each.push(choices.into_iter().map(PlacementCandidate::place).collect());
            if self.is_in_vain(page, each.len()) {
                break;
            }
        }
        each
    }

    /// Decides. `granted` says of each placement which ad under strict caps the person's object granted it; `None` where
    /// it was not asked, or did not answer.
    #[must_use]
    pub fn decide(&self, granted: Option<&[Option<usize>]>) -> Vec<Decided> {
        self.walk(granted, false).0
    }

    /// The campaign of the first ad that would be placed if its person got a unit, which it may: the object of that offer
    /// is to be asked. One a call, whatever comes after it on the page.
    #[must_use]
    pub fn wants_unit(&self, granted: Option<&[Option<usize>]>) -> Option<u32> {
        let may = |campaign: &u32| self.holding(*campaign) == Some(Holding::May);
        let (decided, _) = self.walk(granted, true);
        decided.into_iter().filter_map(|won| Some(self.offer_of(won)?.entity.campaign)).find(may)
    }

    /// The number of the unit that an ad shows; `None` for one of a campaign that gives none.
    #[must_use]
    pub fn unit(&self, offer: &CandidateAd) -> Option<u32> {
        match self.holding(offer.entity.campaign)? {
            Holding::Has(number) => Some(number),
            Holding::May => None,
        }
    }

    fn holding(&self, campaign: u32) -> Option<Holding> {
        self.units.as_ref()?.get(&campaign).copied()
    }

    /// The arms that the person is in, by the experiments' places; empty where there are none for it.
    #[must_use]
    pub fn arms(&self) -> &[Option<u8>] {
        &self.arms
    }

    /// The places of the experiments that this page is part of: those of which an ad of any arm comes in a placement's size,
    /// in its time, and for who looks at it. Whether it is an ad of the person's own arm makes no difference, nor does what
    /// it is worth, what is at a cap and what else is on the page: so all arms are met alike, the control too.
    #[must_use]
    pub fn met(&self) -> BTreeSet<usize> {
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

    /// What a thousand impressions of each of [`CompiledCatalogue::offers`] are worth on a placement, in micros; `None` for one that
    /// does not match it.
    #[must_use]
    pub fn worths(&self, number: usize) -> Vec<Option<u64>> {
        self.placements.get(number).map(|placement| self.worths_on(placement)).unwrap_or_default()
    }

    fn worths_on(&self, placement: &Placement<'_>) -> Vec<Option<u64>> {
        let mut worths = vec![None; self.catalogue.offers.len()];
        for candidate in self.candidates(placement) {
            worths.iter_mut().skip(candidate.place()).take(1).for_each(|worth| *worth = Some(candidate.worth));
        }
        worths
    }

    /// What a thousand impressions of an ad are worth on a placement, in micros; 0 for one that does not match it.
    #[must_use]
    pub fn worth(&self, number: usize, place: usize) -> u64 {
        let candidates = self.placements.get(number).map(|placement| self.candidates(placement)).unwrap_or_default();
        candidates.iter().find(|candidate| candidate.place() == place).map_or(0, |candidate| candidate.worth)
    }

    /// Decides placement by placement. `hoping`: as if the person got every unit that it may.
    fn walk(&self, granted: Option<&[Option<usize>]>, hoping: bool) -> (Vec<Decided>, Vec<usize>) {
        self.filled(|page| {
            let mut decided = Vec::with_capacity(self.placements.len());
            for (number, placement) in self.placements.iter().enumerate() {
                let granted = of_placement(granted, number);
                let may = |place: usize, offer: &CandidateAd| {
                    (!offer.strict || granted == Some(Some(place))) && (hoping || !self.awaits_unit(offer))
                };
                let won =
                    self.best(placement, page, may).map(PlacementCandidate::place).ok_or_else(|| self.no_ad(placement));
                page.placed.extend(self.offer_of(won));
                decided.push(won);
                if self.is_in_vain(page, decided.len()) {
                    break;
                }
            }
            decided
        })
    }

    /// What comes of a page; anew without a campaign that would fill it and turns out not to. Gives those too.
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

    /// Campaigns that would fill the page and cannot whatever else comes, in order: they have no ad for one of the placements, or
    /// fewer ads than there are placements. Who has none at all is not tried. Each of them tried would be one more page in vain.
    fn hopeless(&self) -> Vec<usize> {
        let mut each = vec![(0, 0); self.catalogue.terms.len()];
        let mut met = vec![false; self.catalogue.offers.len()];
        let page = OnPage::default();
        for (number, placement) in self.placements.iter().enumerate() {
            for candidate in self.candidates(placement).iter().filter(|of| of.worth >= placement.floor_micros) {
                let place = candidate.place();
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

    /// Whether its person may get a unit, and has none.
    fn awaits_unit(&self, offer: &CandidateAd) -> bool {
        self.holding(offer.entity.campaign) == Some(Holding::May)
    }

    fn offer_of(&self, decided: Decided) -> Option<&'a CandidateAd> {
        self.catalogue.offers.get(decided.ok()?)
    }

    fn kind(&self, placement: &Placement<'_>) -> Option<&PlacementKind> {
        self.kinds.iter().find(|kind| kind.view_type == placement.view_type)
    }

    fn candidates(&self, placement: &Placement<'_>) -> &[PlacementCandidate] {
        self.kind(placement).map_or(&[], |kind| &kind.candidates)
    }

    /// The ad worth most of those that may be placed.
    fn best(
        &self,
        placement: &Placement<'_>,
        page: &OnPage<'_>,
        may: impl Fn(usize, &CandidateAd) -> bool,
    ) -> Option<PlacementCandidate> {
        let mut best: Option<PlacementCandidate> = None;
        for candidate in self.candidates(placement) {
            let better = best.is_none_or(|best| candidate.rank() < best.rank());
            if better
                && candidate.worth >= placement.floor_micros
                && let Some(offer) = self.catalogue.offers.get(candidate.place())
                && may(candidate.place(), offer)
                && self.admits(placement, offer, page)
            {
                best = Some(*candidate);
            }
        }
        best
    }

    /// Whether a candidate's size, the page so far and its caps let it be placed.
    fn admits(&self, placement: &Placement<'_>, offer: &CandidateAd, page: &OnPage<'_>) -> bool {
        self.catalogue.fits(offer, placement.sizes)
            && self.terms(offer).is_some_and(|terms| self.on_page(offer, terms, page).is_none())
            && self.capped(offer, page).is_none()
    }

    fn no_ad(&self, placement: &Placement<'_>) -> NoAd {
        let CompiledCatalogue { offers, .. } = self.catalogue;
        let fits = |candidate: &PlacementCandidate| {
            candidate.worth >= placement.floor_micros
                && offers.get(candidate.place()).is_some_and(|offer| self.catalogue.fits(offer, placement.sizes))
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

    fn capped(&self, offer: &CandidateAd, page: &OnPage<'_>) -> Option<AdOutcome> {
        match &self.counts {
            _ if !offer.is_capped() => None,
            None => Some(AdOutcome::Nobody),
            Some(_) if self.holds_caps => Some(AdOutcome::CountUnknown),
            Some(counts) => self.catalogue.bounds(offer).find_map(|bound| {
                let counted = *counts.get(bound.question)?.get(bound.place as usize)?;
                let counted = counted.saturating_add(placed_of(&page.placed, offer.entity, &bound));
                (!bound.cap.admits(counted)).then_some(AdOutcome::Capped(bound, counted))
            }),
        }
    }
}

impl Given<'_> {
    /// Whether a campaign takes part in this call.
    fn lets(&self, terms: &CampaignTerms) -> bool {
        let paced = |steering: &TrafficAllocation| steering.lets(terms.campaign, self.draw, self.now);
        !terms.paced || self.steering.is_some_and(paced)
    }
}

/// `None` where no object was asked.
fn of_placement(granted: Option<&[Option<usize>]>, number: usize) -> Option<Option<usize>> {
    granted.map(|granted| granted.get(number).copied().flatten())
}

/// Counts for all ads at all levels: for each of the catalogue's questions one pass over the actions of its window.
fn counts(catalogue: &CompiledCatalogue, person: &Person<'_>, now: Minute) -> Vec<Vec<u32>> {
    let count = |(verb, window): &(ActionType, actions::TimeWindow)| {
        let (from, to) = window.range(now);
        let question = actions::ActionQuestion { verbs: &[*verb], view_types: ViewTypes::All, from, to };
        catalogue.counter.tally_rows(&person.actions, &question)
    };
    catalogue.questions.iter().map(count).collect()
}

/// How many ads of this call count for a cap.
fn placed_of(placed: &[&CandidateAd], entity: AdEntity, BoundCap { level, cap, .. }: &BoundCap) -> u32 {
    let same = placed.iter().filter(|placed| placed.entity.at(*level) == entity.at(*level)).count();
    if cap.verb == ActionType::IMPRESSION { u32::try_from(same).unwrap_or(u32::MAX) } else { 0 }
}
