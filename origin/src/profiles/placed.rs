//! A fact with the log record that contains it.

use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::{DAY_MS, HOUR_MS};
use causeway_shared::facts::fact::{Fact, FactKind};

/// A fact with the index of the log record that contains it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedFact<'r> {
    pub(crate) record: usize,
    pub(crate) fact: &'r Fact,
    /// Whether the admin side sent it: an administrator, an import, or a job.
    pub(crate) admin: bool,
}

impl PlacedFact<'_> {
    /// Whether the fact is written about the visitor by the admin side, so that it is no activity of the visitor.
    pub(crate) fn is_report(&self) -> bool {
        let what = &self.fact.what;
        self.admin
            && matches!(what, FactKind::Segments { .. } | FactKind::Attributes { .. } | FactKind::Exposure { .. })
    }

    /// Trusted time of the fact: its own time if the admin side sent it, which reports later, otherwise the time of its
    /// receipt.
    pub(crate) fn happened(&self) -> Millis {
        if self.admin { self.fact.at } else { self.fact.received }
    }

    /// Time of a conversion. A page's time counts if it is before the receipt; a purchase of two days ago is therefore
    /// no conversion of an ad shown today.
    pub(crate) fn converted(&self) -> Millis {
        if self.admin { self.fact.at } else { self.fact.at.min(self.fact.received) }
    }

    /// Time that an edge gave the fact; 0 for other sources. FactIds use it, because a fast clock of the origin would
    /// delete FactIds that can still be repeated.
    pub(crate) fn dated(&self) -> Millis {
        if self.admin { 0 } else { self.fact.received }
    }

    /// Whether a campaign pays for the fact. Imported actions were paid where they were placed, and imported history is
    /// not billed.
    pub(crate) fn is_billed(&self) -> bool {
        let Fact { what, at, received, .. } = self.fact;
        !self.admin || !matches!(what, FactKind::Action { .. }) && received.saturating_sub(*at) <= DAY_MS
    }
}

/// Start of the hour in which the newest of these facts was received, without evidence and cancellations; 0 without
/// facts.
pub(super) fn hour_of_newest<'p>(facts: impl Iterator<Item = &'p PlacedFact<'p>>) -> Millis {
    let received =
        facts.filter(|placed| !matches!(placed.fact.what, FactKind::Cancellation { .. } | FactKind::Evidence { .. }));
    let newest = received.map(|placed| placed.fact.received).max().unwrap_or(0);
    newest - newest % HOUR_MS
}
