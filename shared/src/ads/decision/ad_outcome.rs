//! Outcomes of ads in a decision, and the reasons why a placement gets no ad.

use std::collections::BTreeSet;

use super::{OnPage, PageDecision, Placement, of_placement};
use crate::ads::catalogue::{BoundCap, CandidateAd};
use crate::targeting::filter::FilterField;

/// Outcome of one ad for one placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdOutcome {
    /// The ad is placed.
    Won,
    /// The ad could be placed, but another one has a greater value or precedes it in the catalogue's order.
    Outbid,
    /// The ad has none of the placement's sizes.
    Size,
    /// The campaign has not started or is over.
    Dates,
    /// The targeting does not match.
    Targeting,
    /// Missing data leaves it unknown whether the targeting matches.
    Unknown,
    /// The ad belongs to an arm of an experiment that the person is not in.
    Arm,
    /// The ad belongs to an experiment in whose control group the person is; the control sees none of its ads.
    Holdout,
    /// The campaign's pace lets it take no part in this call.
    Pace,
    /// The campaign has a limited number of recipients, and the person is not one of them.
    Recipients,
    /// The ad's value is below the placement's floor.
    Floor,
    /// The page already shows this ad, or another ad of its advertiser.
    OnPage,
    /// The page already shows an ad of a competing category.
    Competes,
    /// The ad's roadblock cannot fill all placements of the page, or another roadblock fills them.
    Roadblock,
    /// The ad has caps, belongs to an arm or to a limited offer, but the request is anonymous, so that nothing can be
    /// counted.
    Anonymous,
    /// The caps are strict, and the person's object did not grant the ad.
    Refused,
    /// The caps are strict or the offer is limited, but no object was asked, or none answered.
    Unconfirmed,
    /// The ad has caps whose actions may be incomplete, and the tenant does not place such ads.
    CountUnknown,
    /// A cap is reached, with this number of actions; the first cap from the ad's level up.
    Capped(BoundCap, u32),
}

impl AdOutcome {
    /// Stable machine-readable code for traces.
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
            Self::Anonymous => "anonymous",
            Self::Unconfirmed => "unconfirmed",
            Self::Refused | Self::Capped(..) => "capped",
        }
    }
}

/// Reason why a placement gets no ad of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAd {
    /// The catalogue has no ads.
    NoCatalogue,
    /// No ad has one of the placement's sizes.
    NoSize,
    /// No ad of a fitting size matches the targeting and run time, or reaches the floor.
    NoneMatches,
    /// All matching ads are capped, were not granted, cannot be counted for an anonymous request, or conflict with the
    /// page.
    AllCapped,
}

impl NoAd {
    /// Stable machine-readable code for answers.
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

impl PageDecision<'_> {
    /// Outcomes of all [`CompiledCatalogue::offers`](crate::ads::catalogue::CompiledCatalogue::offers), in order, for
    /// each placement.
    #[must_use]
    pub fn outcomes(&self, granted: Option<&[Option<usize>]>) -> Vec<Vec<AdOutcome>> {
        let (decided, barred) = self.walk(granted, false);
        let mut page = OnPage { barred, ..self.shown_page() };
        let each = self.placements.iter().zip(decided).enumerate().map(|(number, (placement, decided))| {
            let outcomes = self.outcomes_on(placement, &page, of_placement(granted, number), decided.ok());
            page.placed.extend(self.offer_of(decided));
            outcomes
        });
        each.collect()
    }

    fn outcomes_on(
        &self,
        placement: &Placement<'_>,
        page: &OnPage<'_>,
        granted: Option<Option<usize>>,
        won: Option<usize>,
    ) -> Vec<AdOutcome> {
        let worths: Vec<u64> = self.worths_on(placement).into_iter().map(Option::unwrap_or_default).collect();
        let rank = |place: usize| (std::cmp::Reverse(worths.get(place).copied().unwrap_or(0)), place);
        let outcome = |(place, (offer, worth)): (usize, (&CandidateAd, &u64))| match self
            .refusal_of(placement, offer, *worth, page)
        {
            Some(outcome) => outcome,
            None if won == Some(place) => AdOutcome::Won,
            None if won.is_some_and(|won| rank(won) < rank(place)) => AdOutcome::Outbid,
            None if granted.is_none() || self.awaits_offer_code(offer) => AdOutcome::Unconfirmed,
            None => AdOutcome::Refused,
        };
        self.catalogue.offers.iter().zip(&worths).enumerate().map(outcome).collect()
    }

    /// Reason why an ad cannot be placed; `None` if it can.
    fn refusal_of(
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
            return Some(if self.offer_codes.is_some() { AdOutcome::Recipients } else { AdOutcome::Anonymous });
        }
        if worth < placement.floor_micros {
            return Some(AdOutcome::Floor);
        }
        self.on_page(offer, terms, page).or_else(|| self.reached_cap(offer, page))
    }

    /// Fields that leave it unknown whether an ad's targeting matches, on a placement; empty unless
    /// [`DecisionInputs::explains`](super::DecisionInputs::explains) is set.
    #[must_use]
    pub fn unknown_fields(&self, number: usize, offer: &CandidateAd) -> BTreeSet<FilterField> {
        let kind = self.placements.get(number).and_then(|placement| self.kind(placement));
        let group = self.catalogue.groups.get(offer.group);
        kind.zip(group).map(|(kind, group)| kind.unknown_fields(group)).unwrap_or_default()
    }

    fn not_in_arm(&self, experiment: usize) -> AdOutcome {
        let of = |arm: u8| self.catalogue.experiments.get(experiment)?.arm_of(arm);
        match self.arms.get(experiment) {
            None => AdOutcome::Anonymous,
            Some(arm) if arm.and_then(of).is_some_and(|arm| arm.control) => AdOutcome::Holdout,
            Some(_) => AdOutcome::Arm,
        }
    }
}
