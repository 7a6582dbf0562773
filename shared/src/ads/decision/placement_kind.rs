//! The part of a decision that is common to all placements of one view type.

use std::collections::{BTreeMap, BTreeSet};

use super::worth::AdWorth;
use super::{DecidedPerson, DecisionInputs};
use crate::ads::catalogue::{AdSet, CampaignTerms, CompiledCatalogue};
use crate::facts::actions::ViewType;
use crate::targeting::filter::{FilterField, FilterMatches, FilterSubject};

/// Conditions and candidates common to all placements of one view type.
#[derive(Debug)]
pub(super) struct PlacementKind {
    pub(super) view_type: ViewType,
    /// The filters that match.
    pub(super) matches: FilterMatches,
    /// The ads whose run time and filters match, in no particular order.
    pub(super) candidates: Vec<PlacementCandidate>,
    /// Filters with an unknown result, by index, and the fields that leave it unknown; only filled for traces.
    unknown: BTreeMap<u32, Vec<FilterField>>,
}

/// An ad that may be placed, apart from its size, its caps and the page so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacementCandidate {
    /// Value of a thousand impressions here, in micros.
    pub(super) worth: u64,
    /// Index in [`CompiledCatalogue::offers`].
    place: u32,
}

impl PlacementCandidate {
    /// Sort key: greatest value first, then the catalogue's order.
    pub(super) fn sort_key(self) -> (std::cmp::Reverse<u64>, u32) {
        (std::cmp::Reverse(self.worth), self.place)
    }

    pub(super) fn index(self) -> usize {
        self.place as usize
    }
}

impl PlacementKind {
    pub(super) fn new(
        catalogue: &CompiledCatalogue,
        worth: &AdWorth<'_>,
        subject: &FilterSubject<'_>,
        person: Option<&DecidedPerson<'_>>,
        given: &DecisionInputs<'_>,
    ) -> Self {
        let arms = person.map_or(&[][..], |person| &person.arms);
        let gets = |terms: &CampaignTerms| {
            !terms.limited || person.is_some_and(|person| person.offer_codes.contains_key(&terms.campaign))
        };
        let matches = catalogue.targets.matching(subject);
        let mut candidates = Vec::new();
        // Few of many groups match, so that terms are read only for these.
        for group in catalogue.groups.iter().filter(|group| group.is_for(&matches)) {
            let Some(terms) = catalogue.terms.get(group.terms).filter(|terms| terms.runs.contains(&given.now)) else {
                continue;
            };
            if group.outside(arms).is_none() && given.lets(terms) && gets(terms) {
                let worth = |place: &u32| worth.of(terms.bid, *place as usize, subject.view_type);
                candidates
                    .extend(group.offers.iter().map(|place| PlacementCandidate { worth: worth(place), place: *place }));
            }
        }
        let explained = (0..).take(if given.explains { catalogue.targets.len() } else { 0 });
        let unknown = explained.map(|filter| (filter, catalogue.targets.unknown_fields(filter as usize, subject)));
        let unknown = unknown.filter(|(_, fields)| !fields.is_empty()).collect();
        Self { view_type: subject.view_type, matches, candidates, unknown }
    }

    /// Whether a group that does not match may match: none of its filters is known not to match.
    pub(super) fn is_unknown(&self, group: &AdSet) -> bool {
        let may_match = |filter: &u32| self.matches.contains(*filter as usize) || self.unknown.contains_key(filter);
        group.targets.iter().flatten().all(may_match)
    }

    /// Fields that leave it unknown whether a group matches.
    pub(super) fn unknown_fields(&self, group: &AdSet) -> BTreeSet<FilterField> {
        group.targets.iter().flatten().filter_map(|filter| self.unknown.get(filter)).flatten().copied().collect()
    }
}
