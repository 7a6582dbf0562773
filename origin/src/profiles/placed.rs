//! A fact with the record of the log that brought it.

use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::DAY_MS;
use causeway_shared::facts::fact::{Fact, FactKind};

/// A fact at its place in the log: which record brought it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedFact<'r> {
    pub(crate) record: usize,
    pub(crate) fact: &'r Fact,
    /// Whether the admin side says it: an administrator, an import, or a job for as long as it runs.
    pub(crate) admin: bool,
}

impl PlacedFact<'_> {
    /// Whether it is written of the visitor, which is not seen by that.
    pub(crate) fn is_told(&self) -> bool {
        let what = &self.fact.what;
        self.admin
            && matches!(what, FactKind::Segments { .. } | FactKind::Attributes { .. } | FactKind::Exposure { .. })
    }

    /// When it happened, as far as anybody is believed: the admin side, which tells of it later, by its own word.
    pub(crate) fn happened(&self) -> Millis {
        if self.admin { self.fact.at } else { self.fact.received }
    }

    /// When it converted: a page is believed where it says that the event was before its receipt. So a purchase of the
    /// day before yesterday is no conversion of what was shown today.
    pub(crate) fn converted(&self) -> Millis {
        if self.admin { self.fact.at } else { self.fact.at.min(self.fact.received) }
    }

    /// The date as an edge gives it, 0 where none does. FactIds go by this one: those that a clock here which runs ahead
    /// had forgotten would be counted again.
    pub(crate) fn dated(&self) -> Millis {
        if self.admin { 0 } else { self.fact.received }
    }

    /// Whether a campaign pays for it: what is imported was paid for where it was placed, and history is no news.
    pub(crate) fn is_billed(&self) -> bool {
        let Fact { what, at, received, .. } = self.fact;
        !self.admin || !matches!(what, FactKind::Action { .. }) && received.saturating_sub(*at) <= DAY_MS
    }
}
