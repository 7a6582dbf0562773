//! Rules of a page: which ads may appear together.

use super::{AdOutcome, PageDecision};
use crate::ads::catalogue::{CampaignTerms, CandidateAd};

/// The page so far.
#[derive(Debug, Clone, Default)]
pub(super) struct OnPage<'a> {
    /// Ads placed by earlier calls.
    pub(super) shown: Vec<&'a CandidateAd>,
    pub(super) placed: Vec<&'a CandidateAd>,
    /// Roadblock campaigns that cannot fill the page, in order.
    pub(super) barred: Vec<usize>,
}

impl<'a> PageDecision<'a> {
    /// The page as earlier calls left it. An ad that is no longer in the catalogue is ignored.
    pub(super) fn shown_page(&self) -> OnPage<'a> {
        let shown = self.given.shown.iter().filter_map(|ad| self.catalogue.ad(*ad)).collect();
        OnPage { shown, ..OnPage::default() }
    }

    /// Whether a roadblock failed to fill this number of placements, so that the page must be decided again without it.
    /// A roadblock that already fills the page is not affected.
    pub(super) fn is_in_vain(&self, page: &OnPage<'_>, placements: usize) -> bool {
        page.shown.is_empty()
            && page.placed.len() < placements
            && page.placed.first().is_some_and(|first| self.fills(first))
    }

    /// Reason why an ad cannot appear together with the ads of the page.
    pub(super) fn on_page(&self, offer: &CandidateAd, terms: &CampaignTerms, page: &OnPage<'_>) -> Option<AdOutcome> {
        if page.barred.binary_search(&offer.terms).is_ok() {
            return Some(AdOutcome::Roadblock);
        }
        let mut on_page = page.shown.iter().chain(&page.placed);
        let first = on_page.clone().next()?;
        let same = first.terms == offer.terms;
        if (terms.roadblock || self.fills(first)) && !same {
            return Some(AdOutcome::Roadblock);
        }
        let entity = offer.entity;
        let shown = |placed: &&CandidateAd| {
            let again = placed.entity.ad == entity.ad;
            again || (placed.entity.advertiser == entity.advertiser && !terms.repeats && !terms.roadblock)
        };
        let competes = |placed: &&CandidateAd| {
            let others = self.terms(placed).filter(|_| placed.terms != offer.terms);
            others.is_some_and(|others| others.categories.iter().any(|category| terms.categories.contains(category)))
        };
        if on_page.clone().any(shown) {
            return Some(AdOutcome::OnPage);
        }
        on_page.any(competes).then_some(AdOutcome::Competes)
    }
}
