//! A reader's knowledge of one visitor: the sub-profiles it read, and its own later facts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{MissingParts, ProfileTotals, SubProfile};
use crate::base::ids::{Millis, SessionId};
use crate::base::time::Minute;
use crate::facts::actions::{ActionList, AdAction, PackedActions};
use crate::facts::attributes::PackedAttributes;
use crate::facts::events::EventCount;
use crate::facts::exposures::Exposures;
use crate::facts::fact::PAGE;
use crate::facts::offer_codes::HeldOfferCodes;
use crate::facts::orders::VisitorOrders;
use crate::facts::segments::PackedSegments;

/// A page view that the reader itself knows, possibly newer than its sub-profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaterPage {
    /// The edge's receive time.
    pub received: Millis,
    /// The FactId's first eight bytes.
    pub short: u64,
    /// The session of the page.
    pub session: SessionId,
}

/// A reader's knowledge of one visitor: the newest sub-profile with names of its facts, the newest one without, and
/// facts from elsewhere. The three are stored separately, so that the join is a product of joins. Facts that a
/// sub-profile contains are excluded when the sums are read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownVisitor {
    unnamed: Option<SubProfile>,
    named: Option<SubProfile>,
    /// `None` for most visitors; never empty.
    unsure: Option<Box<UnsureFacts>>,
    /// Whether the reader's own request minted the visitor, so that nothing else can be known.
    is_new: bool,
}

/// Pages, impressions, exposures and offer codes that a sub-profile may or may not contain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct UnsureFacts {
    beyond: BTreeMap<(Millis, u64), SessionId>,
    reserved: ActionList,
    exposed: Exposures,
    got: HeldOfferCodes,
}

impl UnsureFacts {
    fn is_empty(&self) -> bool {
        let Self { beyond, reserved, exposed, got } = self;
        beyond.is_empty() && reserved.is_empty() && exposed.is_empty() && got.is_empty()
    }

    fn join(self, other: Self) -> Self {
        let mut beyond = self.beyond;
        beyond.extend(other.beyond);
        let (exposed, got) = (self.exposed.join(other.exposed), self.got.join(other.got));
        Self { beyond, reserved: self.reserved.join(other.reserved), exposed, got }
    }
}

impl KnownVisitor {
    /// Makes the value from a sub-profile alone.
    #[must_use]
    pub fn from_sub(sub: SubProfile) -> Self {
        if sub.is_named() {
            Self { named: Some(sub), ..Self::default() }
        } else {
            Self { unnamed: Some(sub), ..Self::default() }
        }
    }

    /// Makes the value from pages of a ledger alone.
    #[must_use]
    pub fn from_beyond(pages: impl IntoIterator<Item = LaterPage>) -> Self {
        let beyond = pages.into_iter().map(|p| ((p.received, p.short), p.session)).collect();
        Self::default().with(|unsure| unsure.beyond = beyond)
    }

    /// The same for a visitor minted by this request: unknown data is absent.
    #[must_use]
    pub fn of_new_visitor(self) -> Self {
        Self { is_new: true, ..self }
    }

    /// Adds impressions of placed insertions, which are expected or already counted.
    #[must_use]
    pub fn reserving(self, impressions: impl IntoIterator<Item = AdAction>) -> Self {
        self.with(|unsure| impressions.into_iter().for_each(|action| unsure.reserved.insert(action)))
    }

    /// Adds exposures.
    #[must_use]
    pub fn exposing(self, exposures: &Exposures) -> Self {
        self.with(|unsure| exposures.iter().for_each(|(code, exposure)| unsure.exposed.insert(code, exposure)))
    }

    /// Adds offer codes.
    #[must_use]
    pub fn getting(self, offer_codes: &HeldOfferCodes) -> Self {
        self.with(|unsure| offer_codes.iter().for_each(|(code, offer_code)| unsure.got.insert(code, offer_code)))
    }

    fn with(mut self, add: impl FnOnce(&mut UnsureFacts)) -> Self {
        let mut unsure = self.unsure.take().unwrap_or_default();
        add(&mut unsure);
        self.unsure = Some(unsure).filter(|unsure| !unsure.is_empty());
        self
    }

    /// The newest sub-profile with names of its facts.
    #[must_use]
    pub fn named(&self) -> Option<&SubProfile> {
        self.named.as_ref()
    }

    /// The actions of the newest sub-profile.
    #[must_use]
    pub fn actions(&self) -> Option<PackedActions<'_>> {
        self.newest().and_then(SubProfile::actions)
    }

    /// Impressions that are expected or already counted.
    #[must_use]
    pub fn reserved(&self) -> ActionList {
        self.unsure.as_ref().map(|unsure| unsure.reserved.clone()).unwrap_or_default()
    }

    /// Times of the first and last fact in the newest sub-profile.
    #[must_use]
    pub fn seen(&self) -> Option<(Millis, Millis)> {
        self.newest().and_then(SubProfile::seen)
    }

    /// The segments of the newest sub-profile.
    #[must_use]
    pub fn segments(&self) -> Option<PackedSegments<'_>> {
        self.newest().and_then(SubProfile::segments)
    }

    /// The attributes of the newest sub-profile.
    #[must_use]
    pub fn attributes(&self) -> Option<PackedAttributes<'_>> {
        self.newest().and_then(SubProfile::attributes)
    }

    /// The exposures of the newest sub-profile (none if malformed), joined with the later ones.
    #[must_use]
    pub fn exposures(&self) -> Exposures {
        let held = self.newest().map(SubProfile::exposures).unwrap_or_default();
        self.unsure.iter().fold(held, |held, unsure| held.join(unsure.exposed.clone()))
    }

    /// The offer codes of the newest sub-profile (none if malformed), joined with the later ones.
    #[must_use]
    pub fn offer_codes(&self) -> HeldOfferCodes {
        let held = self.newest().map(SubProfile::offer_codes).unwrap_or_default();
        self.unsure.iter().fold(held, |held, unsure| held.join(unsure.got.clone()))
    }

    /// The orders of the newest sub-profile; none if malformed.
    #[must_use]
    pub fn orders(&self) -> VisitorOrders {
        self.newest().map(SubProfile::orders).unwrap_or_default()
    }

    /// The parts of the visitor's data that may be missing.
    #[must_use]
    pub fn missing(&self) -> MissingParts {
        match self.newest() {
            Some(sub) => sub.missing(),
            None => MissingParts::ALL.when(!self.is_new),
        }
    }

    /// The newer of the two; at the same version, the one with fewer missing parts, then the one with names.
    fn newest(&self) -> Option<&SubProfile> {
        let both = self.unnamed.iter().chain(&self.named);
        both.max_by_key(|sub| (sub.version(), Reverse(sub.missing().count())))
    }

    /// The join, which is commutative, associative and idempotent.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        self.unnamed = both(self.unnamed, other.unnamed, SubProfile::join);
        self.named = both(self.named, other.named, SubProfile::join);
        self.unsure = both(self.unsure, other.unsure, |a, b| Box::new(a.join(*b)));
        self.is_new |= other.is_new;
        self
    }

    /// The sums of the newest sub-profile without names, or of the newest one with names plus the pages it does not
    /// contain; of each sum, the larger. Both are sums over facts of this visitor, so neither is too large. A
    /// sub-profile from before a restore is ignored if one from after it exists.
    #[must_use]
    pub fn totals(&self) -> ProfileTotals {
        let [named, unnamed] = self.latest();
        let [base, unnamed] = [named, unnamed].map(|sub| sub.map(SubProfile::totals).unwrap_or_default());
        let Some(UnsureFacts { beyond, .. }) = self.unsure.as_deref() else { return base.most(unnamed) };
        let names = named.and_then(SubProfile::names);
        let unheld =
            || beyond.iter().filter(|((at, short), _)| !names.as_ref().is_some_and(|n| n.newest.holds(*at, *short)));
        let counted = |s: &SessionId| names.as_ref().is_some_and(|n| n.hold_session(*s, base.sessions));
        let sessions: BTreeSet<SessionId> = unheld().map(|(_, session)| *session).filter(|s| !counted(s)).collect();
        let beyond = ProfileTotals {
            pages: unheld().count() as u64,
            sessions: sessions.len() as u64,
            ..ProfileTotals::default()
        };
        base.plus(beyond).most(unnamed)
    }

    /// The number of events of a name from minute `from` to before `to`, by the rule of [`Self::totals`]; `None` for an
    /// event that snapshots do not time. It is exact if the newest sub-profile is exact and no page is in doubt.
    #[must_use]
    pub fn within(&self, name: &str, from: Minute, to: Minute) -> Option<EventCount> {
        let [named, unnamed] = self.latest();
        let of = |sub: Option<&SubProfile>| sub.map_or(Some(EventCount::Exactly(0)), |sub| sub.within(name, from, to));
        let (base, other) = (of(named)?, of(unnamed)?);
        let beyond = self.unsure.iter().filter(|_| name == PAGE).flat_map(|unsure| unsure.beyond.iter());
        let mut pages: Vec<_> = beyond.filter(|((at, _), _)| (from..to).contains(&Minute::at(*at))).collect();
        if !pages.is_empty() {
            let names = named.and_then(SubProfile::names).unwrap_or_default();
            pages.retain(|((at, short), _)| !names.newest.holds(*at, *short));
        }
        let base = base.plus(EventCount::Exactly(pages.len() as u64));
        let is_newest = unnamed.map(SubProfile::version) <= named.map(SubProfile::version);
        let exact = if is_newest { base.exact() } else { other.exact().filter(|_| pages.is_empty()) };
        let least = base.least().max(other.least());
        Some(if exact.is_some() { EventCount::Exactly(least) } else { EventCount::AtLeast(least) })
    }

    /// The newest sub-profile with names and the newest one without. One from before a restore is left out if the other
    /// is from after it.
    fn latest(&self) -> [Option<&SubProfile>; 2] {
        let restore = |sub: &SubProfile| sub.version().restore;
        let both = [self.named(), self.unnamed.as_ref()];
        let latest = both.iter().flatten().map(|sub| restore(sub)).max();
        both.map(|sub| sub.filter(|sub| Some(restore(sub)) == latest))
    }
}

fn both<T>(a: Option<T>, b: Option<T>, join: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(join(a, b)),
        (a, b) => a.or(b),
    }
}
