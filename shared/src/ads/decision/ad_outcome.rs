//! What becomes of ads, and why a placement gets none.

use std::collections::BTreeSet;

use super::{OnPage, Placement, Question, of_placement};
use crate::ads::catalogue::{BoundCap, CandidateAd};
use crate::targeting::filter::FilterField;

/// What became of one ad for one placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdOutcome {
    /// It is placed.
    Won,
    /// It could have been: another is worth more, or comes before it in the catalogue's order.
    Outbid,
    /// It comes in none of the placement's sizes.
    Size,
    /// Its campaign has not begun yet, or is over.
    Dates,
    /// It is not meant for who looks at this.
    Targeting,
    /// Data is missing that says whether it is meant for the person.
    Unknown,
    /// It belongs to an arm of an experiment that the person is not in.
    Arm,
    /// It belongs to an arm of an experiment, and the person is in the control, which gets none of them.
    Holdout,
    /// Its campaign has a budget, and takes no part in this call.
    Pace,
    /// Its campaign has only so many recipients, and the person is none of them.
    Recipients,
    /// It is worth less than the placement asks.
    Floor,
    /// It is placed on this page already, or another of its advertiser's is.
    OnPage,
    /// What competes with it is placed on this page already.
    Competes,
    /// It fills all placements of a page, and there is one that it cannot fill; or another campaign fills them all.
    Roadblock,
    /// It has caps, belongs to an arm or to a limited offer, and there is nobody to count for.
    Nobody,
    /// Its caps are strict, and the person's object did not grant it.
    Refused,
    /// Its caps are strict, or its campaign has only so many recipients: no object was asked, or none answered.
    Unconfirmed,
    /// It has caps, actions that count for them may be missing, and the tenant holds such ads back.
    CountUnknown,
    /// A cap binds, at so many of its action; the first from the ad up.
    Capped(BoundCap, u32),
}

impl AdOutcome {
    /// A stable name for traces.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Won => "won",
            Self::Outbid => "outbid",
            Self::Size => "size",
            Self::Dates => "dates",
            Self::Targeting => "targeting",
            Self::Unknown | Self::CountUnknown => "unknown",
            Self::Arm => "arm",
            Self::Holdout => "holdout",
            Self::Pace => "pace",
            Self::Recipients => "recipients",
            Self::Floor => "floor",
            Self::OnPage => "on_page",
            Self::Competes => "competes",
            Self::Roadblock => "roadblock",
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
    /// None that does is meant for who looks at this now, and worth what the placement asks.
    NoneMatches,
    /// All that are, are at a cap, were not granted, have caps and nobody to count for, or give way to what is on the page.
    AllCapped,
}

impl NoAd {
    /// A stable name for answers.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::NoCatalogue => "no_catalogue",
            Self::NoSize => "no_size",
            Self::NoneMatches => "none_matches",
            Self::AllCapped => "all_capped",
        }
    }
}

impl Question<'_> {
    /// What became of each of [`Compiled::offers`], in their order, for each placement.
    #[must_use]
    pub fn fates(&self, granted: Option<&[Option<usize>]>) -> Vec<Vec<AdOutcome>> {
        let (decided, barred) = self.walk(granted, false);
        let mut page = OnPage { barred, ..self.shown_page() };
        let each = self.placements.iter().zip(decided).enumerate().map(|(number, (placement, decided))| {
            let fates = self.fates_on(placement, &page, of_placement(granted, number), decided.ok());
            page.placed.extend(self.offer_of(decided));
            fates
        });
        each.collect()
    }

    fn fates_on(
        &self,
        placement: &Placement<'_>,
        page: &OnPage<'_>,
        granted: Option<Option<usize>>,
        won: Option<usize>,
    ) -> Vec<AdOutcome> {
        let worths: Vec<u64> = self.worths_on(placement).into_iter().map(Option::unwrap_or_default).collect();
        let rank = |place: usize| (std::cmp::Reverse(worths.get(place).copied().unwrap_or(0)), place);
        let fate = |(place, (offer, worth)): (usize, (&CandidateAd, &u64))| match self
            .hindrance(placement, offer, *worth, page)
        {
            Some(fate) => fate,
            None if won == Some(place) => AdOutcome::Won,
            None if won.is_some_and(|won| rank(won) < rank(place)) => AdOutcome::Outbid,
            None if granted.is_none() || self.awaits_unit(offer) => AdOutcome::Unconfirmed,
            None => AdOutcome::Refused,
        };
        self.catalogue.offers.iter().zip(&worths).enumerate().map(fate).collect()
    }

    /// Why an ad cannot be placed.
    fn hindrance(
        &self,
        placement: &Placement<'_>,
        offer: &CandidateAd,
        worth: u64,
        page: &OnPage<'_>,
    ) -> Option<AdOutcome> {
        if !self.catalogue.fits(offer, placement.sizes) {
            return Some(AdOutcome::Size);
        }
        let terms = self.terms(offer)?;
        if !terms.runs.contains(&self.given.now) {
            return Some(AdOutcome::Dates);
        }
        let group = self.catalogue.groups.get(offer.group)?;
        let Some(kind) = self.kind(placement) else { return Some(AdOutcome::Targeting) };
        if !group.is_for(&kind.matches) {
            return Some(if kind.is_unknown(group) { AdOutcome::Unknown } else { AdOutcome::Targeting });
        }
        if let Some(experiment) = group.outside(&self.arms) {
            return Some(self.not_in_arm(experiment));
        }
        if !self.given.lets(terms) {
            return Some(AdOutcome::Pace);
        }
        if terms.limited && self.holding(terms.campaign).is_none() {
            return Some(if self.units.is_some() { AdOutcome::Recipients } else { AdOutcome::Nobody });
        }
        if worth < placement.floor_micros {
            return Some(AdOutcome::Floor);
        }
        self.on_page(offer, terms, page).or_else(|| self.capped(offer, page))
    }

    /// The fields that leave it unknown whether an ad is meant for the person, on a placement; none where [`Given::explains`]
    /// was not set.
    #[must_use]
    pub fn unknown_fields(&self, number: usize, offer: &CandidateAd) -> BTreeSet<FilterField> {
        let kind = self.placements.get(number).and_then(|placement| self.kind(placement));
        let group = self.catalogue.groups.get(offer.group);
        kind.zip(group).map(|(kind, group)| kind.unknown_fields(group)).unwrap_or_default()
    }

    fn not_in_arm(&self, experiment: usize) -> AdOutcome {
        let of = |arm: u8| self.catalogue.experiments.get(experiment)?.arm_of(arm);
        match self.arms.get(experiment) {
            None => AdOutcome::Nobody,
            Some(arm) if arm.and_then(of).is_some_and(|arm| arm.control) => AdOutcome::Holdout,
            Some(_) => AdOutcome::Arm,
        }
    }
}
