//! Profiles: the sums of one visitor's facts.
//!
//! The origin folds each fact of a visitor once into its [`Profile`], in any order. A reader at the edge gets a
//! [`SubProfile`]: the same sums at one version. The reader may have a few newer facts in its ledger. [`KnownVisitor`]
//! joins both without counting a fact twice, because a sub-profile names its newest facts and a time before which it
//! contains all facts.

mod known_visitor;
mod missing_parts;
mod snapshot_room;
mod sub_profile;

use std::collections::BTreeSet;

use crate::base::ids::{Micros, Millis, SessionId, SnapshotVersion};
use crate::base::limits;
use crate::base::time::{Day, Minute};
use crate::facts::actions::{ActionList, AdAction, InsertionHash};
use crate::facts::attributes::{AttributeMap, AttributeValue, NameToken};
use crate::facts::events::VisitorEvents;
use crate::facts::exposures::{Exposures, FirstExposure};
use crate::facts::fact::{Fact, FactKind, PAGE, PURCHASE};
use crate::facts::offer_codes::{HeldOfferCode, HeldOfferCodes};
use crate::facts::orders::{OrderPurchase, VisitorOrders};
use crate::facts::segments::SegmentMap;
use crate::profiles::activity::ActivityHistogram;

pub use known_visitor::{KnownVisitor, LaterPage};
pub use missing_parts::MissingParts;
use snapshot_room::HeldParts;
pub use snapshot_room::{QueriedActions, QueriedNames, SnapshotRoom};
pub use sub_profile::{NewestNames, SubContent, SubProfile};

/// Most sessions counted per visitor. A browser that loses its ledger on every page would add one each time.
const SESSIONS: usize = 4_096;

/// Lifetime sums of one visitor, or of all visitors of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProfileTotals {
    /// Pages viewed.
    pub pages: u64,
    /// Sessions: runs of pages with less than 30 idle minutes between them.
    pub sessions: u64,
    /// Purchases.
    pub purchases: u64,
    /// Sum of the purchases' values.
    pub revenue: Micros,
}

impl ProfileTotals {
    /// The sums over both, which must be sums over different visitors.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            pages: self.pages.saturating_add(other.pages),
            sessions: self.sessions.saturating_add(other.sessions),
            purchases: self.purchases.saturating_add(other.purchases),
            revenue: self.revenue.saturating_add(other.revenue),
        }
    }
}

impl ProfileTotals {
    /// The sums without the given purchases, which are repeats.
    #[must_use]
    pub fn without<'a>(self, repeats: impl IntoIterator<Item = &'a OrderPurchase>) -> Self {
        repeats.into_iter().fold(self, |sums, repeat| Self {
            purchases: sums.purchases.saturating_sub(1),
            revenue: sums.revenue.saturating_sub(repeat.value),
            ..sums
        })
    }

    /// The larger of each pair of sums.
    fn most(self, other: Self) -> Self {
        Self {
            pages: self.pages.max(other.pages),
            sessions: self.sessions.max(other.sessions),
            purchases: self.purchases.max(other.purchases),
            revenue: self.revenue.max(other.revenue),
        }
    }
}

/// The newest facts of a visitor by (receipt, id), and a time before which all facts are contained.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewestFacts {
    ids: BTreeSet<(Millis, u64)>,
    floor: Millis,
}

impl NewestFacts {
    /// Makes the value from its parts, as decoded from a wire form.
    #[must_use]
    pub fn from_parts(ids: impl IntoIterator<Item = (Millis, u64)>, floor: Millis) -> Self {
        let mut newest = Self { ids: ids.into_iter().collect(), floor };
        newest.trim();
        newest
    }

    /// The (receipt, short id) pairs, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Millis, u64)> + '_ {
        self.ids.iter().copied()
    }

    /// The time before which all received facts are contained, named or not.
    #[must_use]
    pub fn floor(&self) -> Millis {
        self.floor
    }

    /// Whether a fact is contained. A late fact from before the floor counts as contained until the next version. Once
    /// true for a version, it is true for all later ones.
    #[must_use]
    pub fn holds(&self, received: Millis, short: u64) -> bool {
        received < self.floor || self.ids.contains(&(received, short))
    }

    fn insert(&mut self, received: Millis, short: u64) {
        self.ids.insert((received, short));
        self.trim();
    }

    fn trim(&mut self) {
        while self.ids.len() > limits::NEWEST_FACTS
            && let Some((received, _)) = self.ids.pop_first()
        {
            self.floor = self.floor.max(received.saturating_add(1));
        }
    }
}

/// Parts of a profile that the store keeps in records of their own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileParts {
    /// The actions.
    pub actions: ActionList,
    /// The segments.
    pub segments: SegmentMap,
    /// The attributes.
    pub attributes: AttributeMap,
    /// The exposures.
    pub exposures: Exposures,
    /// The offer codes of limited offers.
    pub offer_codes: HeldOfferCodes,
    /// The events by name.
    pub events: VisitorEvents,
}

/// The sums of one visitor's facts, at the origin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    pub(crate) pages: u64,
    pub(crate) purchases: u64,
    pub(crate) revenue: Micros,
    pub(crate) sessions: BTreeSet<SessionId>,
    pub(crate) seen: Option<(Millis, Millis)>,
    pub(crate) newest: NewestFacts,
    pub(crate) actions: ActionList,
    pub(crate) segments: SegmentMap,
    pub(crate) attributes: AttributeMap,
    pub(crate) exposures: Exposures,
    pub(crate) offer_codes: HeldOfferCodes,
    pub(crate) events: VisitorEvents,
    pub(crate) activity: ActivityHistogram,
    pub(crate) orders: VisitorOrders,
}

impl Profile {
    /// Adds one fact. The caller passes each FactId once (the store remembers them), in any order. Attributes only
    /// count as activity here; their values are added by [`Profile::assign`].
    pub fn fold(&mut self, fact: &Fact) {
        match &fact.what {
            // Facts about the visitor that the visitor did not cause: they leave its profile unchanged.
            FactKind::Cancellation { .. } | FactKind::Evidence { .. } | FactKind::Erasure { .. } => return,
            FactKind::Page { session } => {
                self.pages = self.pages.saturating_add(1);
                self.events.add(PAGE, Minute::at(fact.at));
                self.sessions.insert(*session);
                if self.sessions.len() > SESSIONS {
                    self.sessions.pop_last();
                }
            }
            // A repeat of an order, received after its FactId was forgotten.
            FactKind::Track { name, order: Some(order), .. } if name == PURCHASE && self.orders.contains(*order) => {
                return;
            }
            FactKind::Track { name, value, order, .. } if name != PAGE => {
                let (at, value) = (Minute::at(fact.at), value.unwrap_or_default());
                self.events.add(name, at);
                if name == PURCHASE {
                    self.purchases = self.purchases.saturating_add(1);
                    self.revenue = self.revenue.saturating_add(value);
                    order.iter().for_each(|order| self.orders.insert(*order, OrderPurchase { at, value }));
                }
            }
            FactKind::Action { insertion, action_type, view_type, entity } => self.actions.insert(AdAction {
                insertion: InsertionHash::of(*insertion),
                action_type: *action_type,
                view_type: *view_type,
                entity: *entity,
                minute: Minute::at(fact.at),
            }),
            FactKind::Segments { writes } => {
                let stamp = fact.stamp();
                self.segments.write_all(stamp, writes.iter().cloned());
            }
            FactKind::Exposure { experiment, arm } => {
                // The receive time decides which exposure is first, because a client's own time could be forged.
                self.exposures.insert(*experiment, FirstExposure { arm: *arm, at: fact.received, mixed: false });
            }
            FactKind::OfferCode { campaign, number } => {
                self.offer_codes.insert(*campaign, HeldOfferCode { number: *number, at: fact.received });
            }
            FactKind::Track { .. } | FactKind::Alias { .. } | FactKind::Withdrawal | FactKind::Attributes { .. } => {}
        }
        if fact.is_activity() {
            self.activity.add(fact.at);
        }
        let (first, last) = self.seen.unwrap_or((fact.at, fact.at));
        self.seen = Some((first.min(fact.at), last.max(fact.at)));
        self.newest.insert(fact.received, fact.id.short());
    }

    /// Applies a change that does not count as activity of the visitor, such as facts from an import: the times seen
    /// stay.
    pub fn apply_without_activity(&mut self, add: impl FnOnce(&mut Self)) {
        let seen = self.seen;
        add(self);
        self.seen = seen;
    }

    /// Adds one fact like [`Profile::fold`], and its attribute writes: tokens from the tenant's dictionary with values,
    /// where `None` removes an attribute.
    pub fn assign(&mut self, fact: &Fact, writes: impl IntoIterator<Item = (NameToken, Option<AttributeValue>)>) {
        let stamp = fact.stamp();
        writes.into_iter().for_each(|(token, value)| self.attributes.write(token, stamp, value));
        self.fold(fact);
    }

    /// The profile of a set of facts. Of repeats of a FactId, only the first counts.
    #[must_use]
    pub fn of<'a>(facts: impl IntoIterator<Item = &'a Fact>) -> Self {
        let mut profile = Self::default();
        let mut seen = BTreeSet::new();
        for fact in facts {
            if seen.insert(fact.id) {
                profile.fold(fact);
            }
        }
        profile
    }

    /// The sums.
    #[must_use]
    pub fn totals(&self) -> ProfileTotals {
        ProfileTotals {
            pages: self.pages,
            sessions: self.sessions.len() as u64,
            purchases: self.purchases,
            revenue: self.revenue,
        }
    }

    /// The visitor's actions.
    #[must_use]
    pub fn actions(&self) -> &ActionList {
        &self.actions
    }

    /// The visitor's orders.
    #[must_use]
    pub fn orders(&self) -> &VisitorOrders {
        &self.orders
    }

    /// The visitor's activity per hour of the week.
    #[must_use]
    pub fn activity(&self) -> &ActivityHistogram {
        &self.activity
    }

    /// The visitor's segments.
    #[must_use]
    pub fn segments(&self) -> &SegmentMap {
        &self.segments
    }

    /// The visitor's attributes.
    #[must_use]
    pub fn attributes(&self) -> &AttributeMap {
        &self.attributes
    }

    /// The visitor's exposures.
    #[must_use]
    pub fn exposures(&self) -> &Exposures {
        &self.exposures
    }

    /// The visitor's offer codes.
    #[must_use]
    pub fn offer_codes(&self) -> &HeldOfferCodes {
        &self.offer_codes
    }

    /// The visitor's events by name.
    #[must_use]
    pub fn events(&self) -> &VisitorEvents {
        &self.events
    }

    /// Takes out the parts that the store keeps in records of their own. Facts folded afterwards are only the new ones.
    pub fn take_parts(&mut self) -> ProfileParts {
        ProfileParts {
            actions: std::mem::take(&mut self.actions),
            segments: std::mem::take(&mut self.segments),
            attributes: std::mem::take(&mut self.attributes),
            exposures: std::mem::take(&mut self.exposures),
            offer_codes: std::mem::take(&mut self.offer_codes),
            events: std::mem::take(&mut self.events),
        }
    }

    /// Joins parts from records of their own with the current parts. Their events must come from other facts.
    #[must_use]
    pub fn with_parts(mut self, parts: ProfileParts) -> Self {
        self.actions = parts.actions.join(self.actions);
        self.segments = parts.segments.join(self.segments);
        self.attributes = parts.attributes.join(self.attributes);
        self.exposures = parts.exposures.join(self.exposures);
        self.offer_codes = parts.offer_codes.join(self.offer_codes);
        self.events = parts.events.plus(self.events);
        self
    }

    /// Times of the visitor's first and last fact; `None` without facts.
    #[must_use]
    pub fn seen(&self) -> Option<(Millis, Millis)> {
        self.seen
    }

    /// The sub-profile at this version. `named` is set for the visitor's own snapshot, whose ledger needs the names of
    /// the newest facts; siblings omit them.
    #[must_use]
    pub fn sub_profile(&self, version: SnapshotVersion, named: bool) -> SubProfile {
        self.sub_profile_within(version, named, &SnapshotRoom::whole(Day(0), &QueriedNames::default()))
    }

    /// The sub-profile reduced to the room of a snapshot; it names the parts that it lacks.
    #[must_use]
    pub fn sub_profile_within(&self, version: SnapshotVersion, named: bool, room: &SnapshotRoom<'_>) -> SubProfile {
        let skip = self.sessions.len().saturating_sub(limits::NEWEST_SESSIONS);
        let names = || NewestNames {
            sessions: self.sessions.iter().skip(skip).copied().collect(),
            newest: self.newest.clone(),
        };
        let HeldParts { actions, segments, attributes, recent, missing } = HeldParts::of(self, room);
        let (names, exposures, offer_codes) = (named.then(names), self.exposures.pack(), self.offer_codes.pack());
        let (totals, seen, orders) = (self.totals(), self.seen, self.orders.pack());
        let content = SubContent {
            totals,
            seen,
            names,
            actions,
            segments,
            attributes,
            exposures,
            offer_codes,
            recent,
            orders,
            missing,
        };
        SubProfile::pack(version, &content)
    }
}
