//! Identity of one request: the visitor, the KV keys to read, the visitors of the same person, and the cookies to
//! write.
//!
//! The steps are values. [`begin_identity`] returns the first read, [`BegunIdentity::after_first`] the second and last
//! one, and [`SecondRead::finish`] the recognised visitor. The worker performs the reads between the steps. Nothing
//! here waits: a read that failed or was late counts as absent.

mod claim;
mod identity_cookie;
mod members;
pub mod people;
mod recognised;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::slice;

pub use self::claim::IdClaim;
pub use self::identity_cookie::IdentityCookie;
use self::members::{ProvenMembers, SiblingReads, are_of_two_keys, each_once, first_of, keep_own, may_join, same_id};
pub use self::recognised::RecognisedVisitor;
use crate::base::ids::{AltHash, AlternateId, Millis, SnapshotVersion, VisitorId};
use crate::base::limits;
use crate::base::planted::{self, PlantedBug};
use crate::base::random::Random;
use crate::profiles::ledger::Ledger;
use crate::profiles::profile::{KnownVisitor, MissingParts};
use crate::profiles::view::{JoinedView, Snapshot, StoredValue};

/// The age after which an unchanged identity cookie is written again, so that its 400 days restart: one day.
const REWRITE_MS: u64 = 86_400_000;

/// The inputs of a request that has permission for an identity.
#[derive(Debug, Clone)]
pub struct IdentityRequest {
    /// The edge's receive time.
    pub now: Millis,
    /// The identity cookie, checked and not expired.
    pub cookie: Option<IdentityCookie>,
    /// Further identity cookies, checked, of other visitors. One of them is used if the visitor of `cookie` is gone.
    pub others: Vec<IdentityCookie>,
    /// The ledger cookie, checked.
    pub ledger: Option<Ledger>,
    /// Alternate ids; at most one of a unique kind.
    pub claims: Vec<IdClaim>,
    /// Time in ms from minting until a visitor may have a snapshot. A younger visitor's snapshot is not read, because
    /// the KV would cache the miss.
    pub publish_delay_ms: u64,
}

/// How the request got its visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisitorOrigin {
    /// From the cookie.
    Returning,
    /// An earlier visitor of this browser, whose member is using it again.
    Switched,
    /// Minted in this request.
    Minted,
}

/// The keys of one bulk read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BulkRead {
    /// Visitors whose snapshots are read.
    pub snapshots: Vec<VisitorId>,
    /// Alternate ids whose lookups are read.
    pub lookups: Vec<AlternateId>,
}

impl BulkRead {
    /// Whether there is nothing to read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.snapshots.is_empty() && self.lookups.is_empty()
    }
}

/// The result of one bulk read. Missing, invalid and late values are left out.
#[derive(Debug, Clone, Default)]
pub struct BulkResult {
    /// Snapshots and tombstones.
    pub stored: BTreeMap<VisitorId, StoredValue>,
    /// For visitors whose snapshot here is outdated ([`crate::wire::newest_versions::NewestVersions`]): the newest
    /// version that the isolate has read. Only the visitor's own facts are used from an outdated snapshot.
    pub newest: BTreeMap<VisitorId, SnapshotVersion>,
    /// Visitors named by lookups, last seen first.
    pub lookups: Vec<VisitorId>,
    /// Whether the read failed or was late, so that a missing value proves nothing.
    pub failed: bool,
    /// Whether a lookup was present but invalid.
    pub has_bad_lookup: bool,
}

/// The state between the request and its first read.
#[derive(Debug, Clone)]
pub struct BegunIdentity {
    state: IdentityState,
    others: Vec<IdentityCookie>,
    reads: BulkRead,
}

/// The state between the first read and the second.
#[derive(Debug, Clone)]
pub struct SecondRead {
    state: IdentityState,
    stored: BTreeMap<VisitorId, StoredValue>,
    /// Visitors named by this request's own lookups.
    looked_up: Vec<VisitorId>,
    newest: BTreeMap<VisitorId, SnapshotVersion>,
    siblings: Vec<VisitorId>,
    reads: BulkRead,
    minted: bool,
    /// Whether an unread lookup may name further visitors.
    lacks_lookups: bool,
}

/// The outcome of the first read.
#[derive(Debug, Clone)]
pub enum IdentityStep {
    /// Continue with [`SecondRead::finish`], after the second read if there is one.
    Second(Box<SecondRead>),
    /// The visitor was erased or withdrew: answer without identity.
    Forgotten(SurvivingCookie),
}

/// The cookie to write if the visitor that a request was switched to is gone: the browser's own cookie without that
/// visitor. `None` if the browser's own visitor is gone; then both cookies must expire.
pub type SurvivingCookie = Option<Box<IdentityCookie>>;

#[derive(Debug, Clone)]
struct IdentityState {
    now: Millis,
    origin: VisitorOrigin,
    arrived: Option<IdentityCookie>,
    cookie: IdentityCookie,
    ledger: Ledger,
    /// The ledger cookie, if it is of another visitor: answers to two members of one browser may overtake one another.
    another: Option<Ledger>,
    claims: Vec<IdClaim>,
    /// Short hashes of the claims whose lookups are in the first read.
    queried: Vec<u32>,
}

/// Chooses the visitor of the cookie, an earlier one of this browser, or a new one; returns the first read.
#[must_use]
pub fn begin_identity(arrival: IdentityRequest, random: &mut Random) -> BegunIdentity {
    let IdentityRequest { now, cookie, others, ledger, claims, publish_delay_ms } = arrival;
    let mut state = match cookie {
        Some(cookie) => IdentityState::returning(now, cookie, ledger, claims),
        None => IdentityState::minted(now, claims, random),
    };
    state.switch_to_holder(random);
    let settled = state.origin != VisitorOrigin::Minted
        && now.saturating_sub(state.cookie.visitor.minted_ms()) >= publish_delay_ms;
    let own = settled.then_some(state.cookie.visitor);
    state.queried = state.uncovered().map(IdClaim::short).collect();
    let further = state.cookie.pending.iter().copied().chain(others.iter().map(|other| other.visitor));
    let reads = BulkRead {
        snapshots: own.into_iter().chain(further).collect(),
        lookups: state.uncovered().flat_map(IdClaim::ids).collect(),
    };
    BegunIdentity { state, others, reads }
}

impl BegunIdentity {
    /// The keys of the first read. No read is needed if they are empty.
    #[must_use]
    pub fn reads(&self) -> &BulkRead {
        &self.reads
    }

    /// Whether a visitor was minted. The worker limits mints per client network.
    #[must_use]
    pub fn minted(&self) -> bool {
        self.state.origin == VisitorOrigin::Minted
    }

    /// Processes the first read. The visitor's own snapshot holds a unique id, so the browser may switch visitors once
    /// more. Lookups name siblings that the second read must fetch.
    #[must_use]
    pub fn after_first(self, found: BulkResult, random: &mut Random) -> IdentityStep {
        let Self { mut state, others, .. } = self;
        let is_gone = |visitor| matches!(found.stored.get(&visitor), Some(StoredValue::Tombstone));
        if is_gone(state.cookie.visitor)
            && let Some(cookie) = others.into_iter().find(|other| !is_gone(other.visitor))
        {
            state = state.resume_as(cookie, random);
        }
        let own = state.cookie.visitor;
        let other = match found.stored.get(&own) {
            Some(StoredValue::Tombstone) => return IdentityStep::Forgotten(state.surviving_cookie()),
            Some(StoredValue::Snapshot(snapshot)) => state.other_holder(snapshot.surely_held()),
            None => None,
        };
        if let Some(tag) = other {
            state.switch(tag, random);
        }
        let minted = other.is_some() && state.origin == VisitorOrigin::Minted;
        if found.failed {
            state.queried.clear();
        }
        // After a switch, the visitor may lack lookups that were read earlier for the cookie's visitor.
        let is_unread = |claim: &IdClaim| !state.queried.contains(&claim.short());
        let lacks_lookups = found.has_bad_lookup || state.uncovered().any(is_unread);
        let named = state.cookie.pending.iter().chain(&found.lookups).copied();
        let siblings = each_once(named.filter(|v| *v != state.cookie.visitor && (other.is_none() || *v != own)));
        let moved = (other.is_some() && state.origin == VisitorOrigin::Switched).then_some(state.cookie.visitor);
        let wanted = moved.into_iter().chain(siblings.iter().copied());
        let missing = wanted.filter(|v| !found.stored.contains_key(v) && !self.reads.snapshots.contains(v));
        let reads = BulkRead { snapshots: missing.take(limits::KV_KEYS).collect(), lookups: Vec::new() };
        IdentityStep::Second(Box::new(SecondRead {
            state,
            stored: found.stored,
            looked_up: found.lookups,
            newest: found.newest,
            siblings,
            reads,
            minted,
            lacks_lookups,
        }))
    }
}

impl SecondRead {
    /// The keys of the second read. No second read is needed if they are empty.
    #[must_use]
    pub fn reads(&self) -> &BulkRead {
        &self.reads
    }

    /// Whether the first read caused a mint; see [`BegunIdentity::minted`].
    #[must_use]
    pub fn minted(&self) -> bool {
        self.minted
    }

    /// Joins all that was read, and the ledger, into the view of the recognised visitor.
    ///
    /// # Errors
    /// [`SurvivingCookie`], as with [`IdentityStep::Forgotten`], if the visitor is gone or now belongs to another
    /// member.
    pub fn finish(self, found: BulkResult) -> Result<RecognisedVisitor, SurvivingCookie> {
        let Self { mut state, mut stored, mut newest, siblings, looked_up, lacks_lookups, .. } = self;
        found.stored.into_iter().for_each(|(visitor, there)| drop(stored.insert(visitor, there)));
        found.newest.into_iter().for_each(|(visitor, version)| _ = newest.insert(visitor, version));
        keep_own(&mut stored, &newest);
        let own = state.cookie.visitor;
        state.ledger.highest = newest.remove(&own).unwrap_or_default().max(state.ledger.highest);
        let mut mine = match stored.remove(&own) {
            Some(StoredValue::Snapshot(snapshot)) if state.other_holder(snapshot.surely_held()).is_none() => {
                Some(*snapshot)
            }
            Some(_) => return Err(state.surviving_cookie()),
            None => None,
        };
        // An unproven id tied the visitor to another member, but this member is at the browser: use its own facts only.
        if let Some(snapshot) = mine.as_mut().filter(|snapshot| state.other_holder(&snapshot.unique).is_some()) {
            snapshot.leave_person();
        }
        let mut unique = state.unique().map(Cow::into_owned).unwrap_or_default();
        // Without a proof, the snapshot's unique ids count too: the cookie's tag may be under a retired key.
        unique.extend(mine.iter().filter(|_| state.holder().is_none()).flat_map(|snapshot| &snapshot.unique));
        let (joining, others) = may_join(&unique, &siblings, &stored);
        if others.hold(own, mine.as_ref().map(|snapshot| snapshot.version).unwrap_or_default()) {
            return Err(state.surviving_cookie());
        }
        let (mut view, mut proven) = (JoinedView::default(), ProvenMembers::of(&state.claims));
        if let Some(snapshot) = mine {
            let snapshot = others.keep_out_of(snapshot);
            if snapshot.version >= state.ledger.highest {
                proven.learn(&snapshot);
            }
            state.adopt(snapshot, &mut view);
        }
        state.ledger.settle(state.now, view.named(own));
        view.add_known(own, state.known());
        view.note_missing(MissingParts::MEMBERS.when(lacks_lookups));
        let named = |visitor| view.memberships().names(visitor);
        let login_is_known = !view.memberships().is_silent() && state.login_is_held(&view);
        let (mut pending, mut siblings_read) = (Vec::new(), SiblingReads::default());
        for sibling in siblings {
            if login_is_known && !named(sibling) && !looked_up.contains(&sibling) {
                continue;
            }
            let is_pending = match stored.remove(&sibling) {
                Some(StoredValue::Snapshot(snapshot)) if joining.contains(&sibling) => {
                    let snapshot = others.keep_out_of(*snapshot);
                    proven.learn(&snapshot);
                    siblings_read.add(sibling, snapshot, newest.get(&sibling));
                    true
                }
                // The sibling's id is under another key than this login; its next snapshot has the id under both keys.
                Some(StoredValue::Snapshot(snapshot)) if are_of_two_keys(&unique, &snapshot.unique) => {
                    siblings_read.unread.push(sibling);
                    state.cookie.pending.contains(&sibling)
                }
                Some(_) => false,
                None => {
                    siblings_read.unread.extend(Some(sibling).filter(|sibling| !named(*sibling)));
                    true
                }
            };
            if is_pending && !named(sibling) {
                pending.push(sibling);
            }
        }
        siblings_read.join_into(&mut view, own);
        pending.retain(|v| view.memberships().counts(own, *v));
        state.remember(pending, &looked_up);
        Ok(RecognisedVisitor { lacks_lookups, ..state.recognised(view, proven.into_members()) })
    }
}

impl IdentityState {
    fn returning(now: Millis, cookie: IdentityCookie, ledger: Option<Ledger>, claims: Vec<IdClaim>) -> Self {
        let (own, another) = match ledger {
            Some(ledger) if ledger.visitor == cookie.visitor => (Some(ledger), None),
            another => (None, another),
        };
        let ledger = own.unwrap_or_else(|| Ledger::new(cookie.visitor));
        let arrived = Some(cookie.clone());
        Self { now, origin: VisitorOrigin::Returning, arrived, cookie, ledger, another, claims, queried: Vec::new() }
    }

    fn minted(now: Millis, claims: Vec<IdClaim>, random: &mut Random) -> Self {
        let visitor = VisitorId::mint(now, random.draw());
        let cookie = IdentityCookie {
            visitor,
            written: now,
            tag: None,
            covered: Vec::new(),
            earlier: Vec::new(),
            pending: Vec::new(),
            login: None,
        };
        Self {
            now,
            origin: VisitorOrigin::Minted,
            arrived: None,
            cookie,
            ledger: Ledger::new(visitor),
            another: None,
            claims,
            queried: Vec::new(),
        }
    }

    /// Restarts the request with another of its identity cookies, because the visitor of the first is gone.
    fn resume_as(self, cookie: IdentityCookie, random: &mut Random) -> Self {
        let ledger = [Some(self.ledger), self.another].into_iter().flatten().find(|l| l.visitor == cookie.visitor);
        let mut state = Self { queried: self.queried, ..Self::returning(self.now, cookie, ledger, self.claims) };
        state.switch_to_holder(random);
        state
    }

    /// Switches away from the cookie's visitor if the request proves another member than the visitor's.
    fn switch_to_holder(&mut self, random: &mut Random) {
        let other = self.cookie.tag.filter(|tag| self.holder().is_some_and(|holder| holder.is(*tag) != Some(true)));
        if let Some(tag) = other
            && !planted::is_active(PlantedBug::LinkOnSharedDevice)
        {
            self.switch(tag, random);
        }
    }

    /// The claim of the member at this browser.
    fn holder(&self) -> Option<&IdClaim> {
        self.claims.iter().find(|c| c.unique)
    }

    /// The unique id of the visitor's member: claimed by this request, or remembered from an earlier proof.
    fn unique(&self) -> Option<Cow<'_, [AltHash]>> {
        match self.holder() {
            Some(claim) => Some(claim.hashes().into()),
            None => self.cookie.tag.as_ref().map(|tag| slice::from_ref(tag).into()),
        }
    }

    /// The unique id that the snapshot's visitor has, if it is not the id of the member at this browser.
    fn other_holder(&self, held: &[AltHash]) -> Option<AltHash> {
        let here = self.unique()?;
        let first = *held.first()?;
        (same_id(held, &here) == Some(false)).then_some(first)
    }

    /// Claims whose lookups this browser has not read yet.
    fn uncovered(&self) -> impl Iterator<Item = &IdClaim> {
        self.claims.iter().filter(|c| !self.cookie.covered.contains(&c.short()))
    }

    /// Leaves the visitor to the member that has the id `held`, and switches to a visitor of the member at this
    /// browser: an earlier one of this browser, otherwise a new one.
    fn switch(&mut self, held: AltHash, random: &mut Random) {
        let here = self.unique().unwrap_or_default().into_owned();
        let left = (held, self.cookie.visitor);
        let earlier = self.cookie.earlier.iter().find(|(tag, v)| here.contains(tag) && *v != left.1).copied();
        let (origin, visitor) = match earlier {
            Some((_, visitor)) => (VisitorOrigin::Switched, visitor),
            None => (VisitorOrigin::Minted, VisitorId::mint(self.now, random.draw())),
        };
        let others =
            self.cookie.earlier.iter().copied().filter(|(tag, v)| *tag != held && *v != visitor && *v != left.1);
        self.cookie.earlier = [left].into_iter().chain(others).take(limits::EARLIER_VISITORS).collect();
        self.cookie.tag = here.first().copied();
        self.cookie.covered.clear();
        self.cookie.pending.clear();
        self.cookie.login = None;
        self.cookie.visitor = visitor;
        let own = self.another.take_if(|ledger| ledger.visitor == visitor);
        self.ledger = own.unwrap_or_else(|| Ledger::new(visitor));
        self.origin = origin;
    }

    /// The cookie to write if the recognised visitor is gone.
    fn surviving_cookie(self) -> SurvivingCookie {
        self.arrived?.without(self.cookie.visitor).map(Box::new)
    }

    /// Adds the visitor's own snapshot to the view. A snapshot older than the newest one seen contributes only the
    /// visitor's own facts, because its members may have been cut since.
    fn adopt(&mut self, mut snapshot: Snapshot, view: &mut JoinedView) {
        let own = self.cookie.visitor;
        if snapshot.version < self.ledger.highest && !planted::is_active(PlantedBug::AcceptAnOlderVersion) {
            if let Some(sub) = snapshot.profiles.remove(&own) {
                view.add_known(own, KnownVisitor::from_sub(sub));
            }
            // The newer snapshot may contain anything.
            view.note_missing(MissingParts::ALL);
            return;
        }
        self.ledger.highest = snapshot.version;
        // The tag stands for a proof at this browser, so it is only renewed under the active key; other evidence may
        // end.
        let own_id = snapshot.unique.first().filter(|_| self.holder().is_none());
        let renew = |tag| own_id.filter(|_| same_id(&snapshot.unique, &[tag]) != Some(false)).copied().unwrap_or(tag);
        self.cookie.tag = self.cookie.tag.map(renew);
        view.add_snapshot(snapshot);
    }

    /// The facts that the browser itself has. A visitor minted in this request has no others.
    fn known(&self) -> KnownVisitor {
        let known = self.ledger.known();
        if self.origin == VisitorOrigin::Minted { known.of_new_visitor() } else { known }
    }

    /// Whether the visitor's own snapshot contains the login that its pending siblings come from. If it does and does
    /// not name them, the login was cancelled or linked no visitor.
    fn login_is_held(&self, view: &JoinedView) -> bool {
        let held = |(received, short)| view.named(self.cookie.visitor).is_some_and(|sub| sub.holds(received, short));
        self.cookie.login.is_some_and(held)
    }

    /// Updates the cookie after this request.
    fn remember(&mut self, mut pending: Vec<VisitorId>, looked_up: &[VisitorId]) {
        // Siblings of a new proof come before siblings from ids of earlier requests.
        if self.holder().is_some_and(|holder| self.queried.contains(&holder.short())) {
            pending = first_of(pending, looked_up);
        }
        pending.truncate(limits::PENDING_SIBLINGS);
        self.cookie.tag = self.holder().map(|claim| claim.id.hash).or(self.cookie.tag);
        self.cookie.covered.append(&mut self.queried);
        let over = self.cookie.covered.len().saturating_sub(limits::COVERED);
        self.cookie.covered.drain(..over);
        // New siblings wait for this request's login.
        let is_new = !self.claims.is_empty() && pending.iter().any(|sibling| !self.cookie.pending.contains(sibling));
        self.cookie.login.take_if(|_| pending.is_empty() || is_new);
        self.cookie.pending = pending;
    }

    fn recognised(mut self, view: JoinedView, proven: BTreeSet<VisitorId>) -> RecognisedVisitor {
        let changed = self
            .arrived
            .as_ref()
            .is_none_or(|arrived| *arrived != self.cookie || arrived.written.saturating_add(REWRITE_MS) < self.now);
        if changed {
            self.cookie.written = self.now;
        }
        RecognisedVisitor {
            visitor: self.cookie.visitor,
            origin: self.origin,
            view,
            proven,
            unique: self.cookie.tag,
            cookie: self.cookie,
            cookie_changed: changed,
            ledger: self.ledger,
            claims: self.claims,
            now: self.now,
            lacks_lookups: false,
        }
    }
}
