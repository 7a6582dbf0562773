//! The decision: which ads of a catalogue are placed on one page, in front of one person.
//!
//! Every placement gets the first ad, in the catalogue's order, that fits it and whose caps all hold. An ad placed
//! earlier in the same call counts as its impression for the placements after it, and is not placed twice. The same
//! inputs give the same answer; nothing is drawn at random, and nothing is remembered here.

#[cfg(test)]
mod tests;

use crate::actions::{self, Counter, Counts, Entity, Level, PackedActions, Verb, ViewTypes};
use crate::catalogue::{Bound, Compiled, Offer};
use crate::time::Minute;

/// In front of whom ads are placed.
#[derive(Debug, Clone, Default)]
pub struct Person<'a> {
    /// The actions of each visitor that counts ([`crate::view::View::actions`]), and behind them the reservations of the
    /// request's own ([`crate::view::View::reserved`]) as one more visitor's: an insertion that both hold counts once.
    pub actions: Vec<PackedActions<'a>>,
}

/// What became of one ad for one placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is placed.
    Won,
    /// It could have been: another of the catalogue's order came before it.
    Outbid,
    /// It comes in none of the placement's sizes.
    Size,
    /// It is placed on this page already.
    OnPage,
    /// It has caps, and there is nobody to count for.
    Nobody,
    /// Its caps are strict, and the person's object did not grant it.
    Refused,
    /// Its caps are strict, and no object was asked, or none answered.
    Unconfirmed,
    /// A cap binds, at so many of its action; the first from the ad up.
    Capped(Bound, u32),
}

impl Fate {
    /// A stable name for traces.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Won => "won",
            Self::Outbid => "outbid",
            Self::Size => "size",
            Self::OnPage => "on_page",
            Self::Nobody => "nobody",
            Self::Unconfirmed => "unconfirmed",
            Self::Refused | Self::Capped(..) => "capped",
        }
    }
}

/// Why a placement gets no ad of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAd {
    /// There is none in it.
    NoCatalogue,
    /// None comes in the placement's sizes.
    NoSize,
    /// All that do are at a cap, were not granted, were placed on this page already, or have caps and nobody to count for.
    AllCapped,
}

impl NoAd {
    /// A stable name for answers.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::NoCatalogue => "no_catalogue",
            Self::NoSize => "no_size",
            Self::AllCapped => "all_capped",
        }
    }
}

/// What is decided for one placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The place in [`Compiled::offers`] of the ad, or why there is none.
    pub ad: Result<usize, NoAd>,
    /// What became of each of [`Compiled::offers`], in their order.
    pub fates: Vec<Fate>,
}

/// A call's question, before it is decided or asked about.
#[derive(Debug)]
pub struct Question<'a> {
    catalogue: &'a Compiled,
    /// By question of the catalogue, then ad; `None` without a person.
    counts: Option<Vec<Vec<Counts>>>,
    placements: Vec<&'a [[u32; 2]]>,
}

impl<'a> Question<'a> {
    /// For placements that name these sizes each, in their order. Without a person no ad with caps is placed.
    #[must_use]
    pub fn new(
        catalogue: &'a Compiled,
        person: Option<&Person<'_>>,
        placements: Vec<&'a [[u32; 2]]>,
        now: Minute,
    ) -> Self {
        Self { catalogue, counts: person.map(|person| counts(catalogue, person, now)), placements }
    }

    /// The ads under strict caps that may be placed, by placement, the first choice first: as many as come before the
    /// first ad that needs no asking, so that what is granted is also placed.
    #[must_use]
    pub fn strict(&self) -> Vec<Vec<usize>> {
        let mut placed = Vec::new();
        let each = self.placements.iter().map(|sizes| {
            let (mut choices, mut first) = (Vec::new(), None);
            for (place, offer) in self.catalogue.offers.iter().enumerate() {
                if self.hindrance(place, offer, sizes, &placed).is_some() {
                    continue;
                }
                first = first.or(Some(offer.entity));
                if !offer.strict {
                    break;
                }
                choices.push(place);
            }
            placed.extend(first);
            choices
        });
        each.collect()
    }

    /// Decides. `granted` says of each placement which ad under strict caps the person's object granted it; `None` where
    /// it was not asked, or did not answer.
    #[must_use]
    pub fn decide(&self, granted: Option<&[Option<usize>]>) -> Vec<Decided> {
        let mut placed = Vec::new();
        let each = self.placements.iter().enumerate().map(|(number, sizes)| {
            let granted = granted.map(|granted| granted.get(number).copied().flatten());
            let decided = self.place(sizes, granted, &placed);
            placed.extend(decided.ad.ok().and_then(|place| self.catalogue.offers.get(place)).map(|offer| offer.entity));
            decided
        });
        each.collect()
    }
}

/// Counts for all ads at all levels: for each of the catalogue's questions one pass over the actions of its window.
fn counts(catalogue: &Compiled, person: &Person<'_>, now: Minute) -> Vec<Vec<Counts>> {
    if catalogue.questions.is_empty() {
        return Vec::new();
    }
    let mut counter = Counter::new(catalogue.offers.iter().map(|offer| offer.entity));
    let mut count = |(verb, window): &(Verb, actions::Window)| {
        let (from, to) = window.range(now);
        let question = actions::Question { verbs: &[*verb], view_types: ViewTypes::All, from, to };
        counter.count(&person.actions, &question).collect()
    };
    catalogue.questions.iter().map(&mut count).collect()
}

impl Question<'_> {
    fn place(&self, sizes: &[[u32; 2]], granted: Option<Option<usize>>, placed: &[Entity]) -> Decided {
        let mut won = None;
        let mut fates = Vec::with_capacity(self.catalogue.offers.len());
        for (place, offer) in self.catalogue.offers.iter().enumerate() {
            let fate = match self.hindrance(place, offer, sizes, placed) {
                Some(fate) => fate,
                None if won.is_some() => Fate::Outbid,
                None if offer.strict && granted.is_none() => Fate::Unconfirmed,
                None if offer.strict && granted != Some(Some(place)) => Fate::Refused,
                None => {
                    won = Some(place);
                    Fate::Won
                }
            };
            fates.push(fate);
        }
        Decided { ad: won.ok_or_else(|| why_none(&fates)), fates }
    }

    /// Why an ad cannot be placed.
    fn hindrance(&self, place: usize, offer: &Offer, sizes: &[[u32; 2]], placed: &[Entity]) -> Option<Fate> {
        if !offer.fits(sizes) {
            return Some(Fate::Size);
        }
        if placed.contains(&offer.entity) {
            return Some(Fate::OnPage);
        }
        match &self.counts {
            None if offer.bounds.is_empty() => None,
            None => Some(Fate::Nobody),
            Some(counts) => offer.bounds.iter().find_map(|bound| {
                let counts = counts.get(bound.question)?.get(place)?;
                let counted = at(counts, bound.level).saturating_add(placed_of(placed, offer.entity, bound));
                (!bound.cap.admits(counted)).then_some(Fate::Capped(*bound, counted))
            }),
        }
    }
}

/// How many ads of this call count for a cap.
fn placed_of(placed: &[Entity], entity: Entity, Bound { level, cap, .. }: &Bound) -> u32 {
    let same = placed.iter().filter(|placed| placed.at(*level) == entity.at(*level)).count();
    if cap.verb == Verb::IMPRESSION { u32::try_from(same).unwrap_or(u32::MAX) } else { 0 }
}

fn at(counts: &Counts, level: Level) -> u32 {
    let [ad, ad_group, campaign, advertiser] = *counts;
    match level {
        Level::Ad => ad,
        Level::AdGroup => ad_group,
        Level::Campaign => campaign,
        Level::Advertiser => advertiser,
    }
}

fn why_none(fates: &[Fate]) -> NoAd {
    if fates.is_empty() {
        NoAd::NoCatalogue
    } else if fates.iter().all(|fate| *fate == Fate::Size) {
        NoAd::NoSize
    } else {
        NoAd::AllCapped
    }
}
