//! Identity on one request: who is this, what must be read, what is linked, what is remembered and told.
//!
//! The steps are values: [`begin`] says what to read first, [`BegunIdentity::after_first`] what to read then (two
//! sequential reads at most), [`SecondRead::finish`] who it is. The worker does the reading in between. Nothing here
//! waits, and a read that failed or came late is simply not there.

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

/// How often an unchanged identity cookie is written anew, so that its 400 days begin again.
const REWRITE_MS: u64 = 86_400_000;

/// What a request brings, with permission given.
#[derive(Debug, Clone)]
pub struct IdentityRequest {
    /// The edge's receive time.
    pub now: Millis,
    /// The identity cookie, checked and not expired.
    pub cookie: Option<IdentityCookie>,
    /// Further identity cookies, checked, of other visitors: one counts where the visitor of `cookie` is gone.
    pub others: Vec<IdentityCookie>,
    /// The ledger cookie, checked.
    pub ledger: Option<Ledger>,
    /// Alternate ids; of a unique kind one at most.
    pub claims: Vec<IdClaim>,
    /// A visitor younger than this has no snapshot yet, and asking would cache the miss.
    pub publish_delay_ms: u64,
}

/// How the visitor came to its id in this request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisitorOrigin {
    /// From the cookie.
    Returning,
    /// An earlier visitor of this browser, because another member is at it again.
    Switched,
    /// Minted in this request.
    Minted,
}

/// What one bulk read is to fetch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BulkRead {
    /// Visitors whose snapshots are wanted.
    pub snapshots: Vec<VisitorId>,
    /// Alternate ids whose lookups are wanted.
    pub lookups: Vec<AlternateId>,
}

impl BulkRead {
    /// Whether nothing is to be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.snapshots.is_empty() && self.lookups.is_empty()
    }
}

/// What one bulk read brought. What is missing, bad or late is left out.
#[derive(Debug, Clone, Default)]
pub struct BulkResult {
    /// Snapshots and tombstones.
    pub stored: BTreeMap<VisitorId, StoredValue>,
    /// The newest version met of visitors whose snapshot here is an older one ([`NewestVersions`]): of that one only the
    /// visitor's own facts are believed.
    pub newest: BTreeMap<VisitorId, SnapshotVersion>,
    /// Visitors named by lookups, last seen first.
    pub lookups: Vec<VisitorId>,
    /// Whether the read failed or was late, so that a missing value says nothing.
    pub failed: bool,
    /// Whether a lookup was there that could not be read.
    pub has_bad_lookup: bool,
}

/// The state between the request and its first read.
#[derive(Debug, Clone)]
pub struct BegunIdentity {
    who: IdentityState,
    others: Vec<IdentityCookie>,
    reads: BulkRead,
}

/// The state between the first read and the second.
#[derive(Debug, Clone)]
pub struct SecondRead {
    who: IdentityState,
    stored: BTreeMap<VisitorId, StoredValue>,
    /// Visitors that this request's own lookups named.
    looked_up: Vec<VisitorId>,
    newest: BTreeMap<VisitorId, SnapshotVersion>,
    siblings: Vec<VisitorId>,
    reads: BulkRead,
    minted: bool,
    /// Whether a lookup may name visitors that are not known here.
    lacks_lookups: bool,
}

/// What comes after the first read.
#[derive(Debug, Clone)]
pub enum IdentityStep {
    /// Finish, after the second read if it has any.
    Second(Box<SecondRead>),
    /// The visitor was erased or withdrew: answer without identity.
    Forgotten(SurvivingCookie),
}

/// Who stays where the visitor that a request was switched to is gone: the browser's own, whose cookie is to be written, without
/// that one. `None` where it is the browser's own that is gone: the cookies are to expire.
pub type SurvivingCookie = Option<Box<IdentityCookie>>;

#[derive(Debug, Clone)]
struct IdentityState {
    now: Millis,
    origin: VisitorOrigin,
    arrived: Option<IdentityCookie>,
    cookie: IdentityCookie,
    ledger: Ledger,
    /// The ledger that came, where it is another visitor's: answers to two members of one browser may overtake one another.
    another: Option<Ledger>,
    claims: Vec<IdClaim>,
    /// Claims whose lookups the first read asks for.
    asked: Vec<u32>,
}

/// Steps 2 and 3: the visitor of the cookie, an earlier one of this browser, or a new one.
#[must_use]
pub fn begin_identity(arrival: IdentityRequest, random: &mut Random) -> BegunIdentity {
    let IdentityRequest { now, cookie, others, ledger, claims, publish_delay_ms } = arrival;
    let mut who = match cookie {
        Some(cookie) => IdentityState::returning(now, cookie, ledger, claims),
        None => IdentityState::minted(now, claims, random),
    };
    who.switch_to_holder(random);
    let settled =
        who.origin != VisitorOrigin::Minted && now.saturating_sub(who.cookie.visitor.minted_ms()) >= publish_delay_ms;
    let own = settled.then_some(who.cookie.visitor);
    who.asked = who.uncovered().map(IdClaim::short).collect();
    let further = who.cookie.pending.iter().copied().chain(others.iter().map(|other| other.visitor));
    let reads = BulkRead {
        snapshots: own.into_iter().chain(further).collect(),
        lookups: who.uncovered().flat_map(IdClaim::ids).collect(),
    };
    BegunIdentity { who, others, reads }
}

impl BegunIdentity {
    /// What the first read is to fetch; nothing to read means no read.
    #[must_use]
    pub fn reads(&self) -> &BulkRead {
        &self.reads
    }

    /// Whether a visitor was minted, which the worker limits by client network.
    #[must_use]
    pub fn minted(&self) -> bool {
        self.who.origin == VisitorOrigin::Minted
    }

    /// Step 4 and the reads of step 5: the snapshot's own unique id decides again whether this is another
    /// member's visitor; lookups name the siblings still to be read.
    #[must_use]
    pub fn after_first(self, found: BulkResult, random: &mut Random) -> IdentityStep {
        let Self { mut who, others, .. } = self;
        let is_gone = |visitor| matches!(found.stored.get(&visitor), Some(StoredValue::Tombstone));
        if is_gone(who.cookie.visitor)
            && let Some(cookie) = others.into_iter().find(|other| !is_gone(other.visitor))
        {
            who = who.resume_as(cookie, random);
        }
        let own = who.cookie.visitor;
        let other = match found.stored.get(&own) {
            Some(StoredValue::Tombstone) => return IdentityStep::Forgotten(who.stays()),
            Some(StoredValue::Snapshot(snapshot)) => who.other_holder(snapshot.surely_held()),
            None => None,
        };
        if let Some(tag) = other {
            who.switch(tag, random);
        }
        let minted = other.is_some() && who.origin == VisitorOrigin::Minted;
        if found.failed {
            who.asked.clear();
        }
        // A visitor that the first read led to may lack lookups that the cookie's visitor had read before.
        let is_unread = |claim: &IdClaim| !who.asked.contains(&claim.short());
        let lacks_lookups = found.has_bad_lookup || who.uncovered().any(is_unread);
        let named = who.cookie.pending.iter().chain(&found.lookups).copied();
        let siblings = each_once(named.filter(|v| *v != who.cookie.visitor && (other.is_none() || *v != own)));
        let moved = (other.is_some() && who.origin == VisitorOrigin::Switched).then_some(who.cookie.visitor);
        let wanted = moved.into_iter().chain(siblings.iter().copied());
        let missing = wanted.filter(|v| !found.stored.contains_key(v) && !self.reads.snapshots.contains(v));
        let reads = BulkRead { snapshots: missing.take(limits::KV_KEYS).collect(), lookups: Vec::new() };
        IdentityStep::Second(Box::new(SecondRead {
            who,
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
    /// What the second read is to fetch; nothing to read means no second read.
    #[must_use]
    pub fn reads(&self) -> &BulkRead {
        &self.reads
    }

    /// Whether the first read led to a visitor that was minted, as [`BegunIdentity::minted`].
    #[must_use]
    pub fn minted(&self) -> bool {
        self.minted
    }

    /// Step 5: all that was read is joined, with the ledger.
    ///
    /// # Errors
    /// As [`IdentityStep::Forgotten`], where the visitor is gone, or another member's by now.
    pub fn finish(self, found: BulkResult) -> Result<RecognisedVisitor, SurvivingCookie> {
        let Self { mut who, mut stored, mut newest, siblings, looked_up, lacks_lookups, .. } = self;
        found.stored.into_iter().for_each(|(visitor, there)| drop(stored.insert(visitor, there)));
        found.newest.into_iter().for_each(|(visitor, version)| _ = newest.insert(visitor, version));
        keep_own(&mut stored, &newest);
        let own = who.cookie.visitor;
        who.ledger.highest = newest.remove(&own).unwrap_or_default().max(who.ledger.highest);
        let mut mine = match stored.remove(&own) {
            Some(StoredValue::Snapshot(snapshot)) if who.other_holder(snapshot.surely_held()).is_none() => {
                Some(*snapshot)
            }
            Some(_) => return Err(who.stays()),
            None => None,
        };
        // An unproven id tied it to a member, and another member is at this browser: it is that one's alone.
        if let Some(snapshot) = mine.as_mut().filter(|snapshot| who.other_holder(&snapshot.unique).is_some()) {
            snapshot.leave_person();
        }
        let mut unique = who.unique().map(Cow::into_owned).unwrap_or_default();
        // Where nobody proves anything the snapshot knows: the cookie's tag may be of a key that is read no more.
        unique.extend(mine.iter().filter(|_| who.holder().is_none()).flat_map(|snapshot| &snapshot.unique));
        let (joining, others) = may_join(&unique, &siblings, &stored);
        if others.hold(own, mine.as_ref().map(|snapshot| snapshot.version).unwrap_or_default()) {
            return Err(who.stays());
        }
        let (mut view, mut proven) = (JoinedView::default(), ProvenMembers::of(&who.claims));
        if let Some(snapshot) = mine {
            let snapshot = others.keep_out_of(snapshot);
            if snapshot.version >= who.ledger.highest {
                proven.learn(&snapshot);
            }
            who.adopt(snapshot, &mut view);
        }
        who.ledger.settle(who.now, view.named(own));
        view.add_known(own, who.known());
        view.note_missing(MissingParts::MEMBERS.when(lacks_lookups));
        let named = |visitor| view.memberships().names(visitor);
        let told = !view.memberships().is_silent() && who.login_is_held(&view);
        let (mut pending, mut siblings_read) = (Vec::new(), SiblingReads::default());
        for sibling in siblings {
            if told && !named(sibling) && !looked_up.contains(&sibling) {
                continue;
            }
            let stays = match stored.remove(&sibling) {
                Some(StoredValue::Snapshot(snapshot)) if joining.contains(&sibling) => {
                    let snapshot = others.keep_out_of(*snapshot);
                    proven.learn(&snapshot);
                    siblings_read.add(sibling, snapshot, newest.get(&sibling));
                    true
                }
                // Under another key than this login's: its next snapshot has both.
                Some(StoredValue::Snapshot(snapshot)) if are_of_two_keys(&unique, &snapshot.unique) => {
                    siblings_read.unread.push(sibling);
                    who.cookie.pending.contains(&sibling)
                }
                Some(_) => false,
                None => {
                    siblings_read.unread.extend(Some(sibling).filter(|sibling| !named(*sibling)));
                    true
                }
            };
            if stays && !named(sibling) {
                pending.push(sibling);
            }
        }
        siblings_read.join_into(&mut view, own);
        pending.retain(|v| view.memberships().counts(own, *v));
        who.remember(pending, &looked_up);
        Ok(RecognisedVisitor { lacks_lookups, ..who.recognised(view, proven.into_members()) })
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
        Self { now, origin: VisitorOrigin::Returning, arrived, cookie, ledger, another, claims, asked: Vec::new() }
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
            asked: Vec::new(),
        }
    }

    /// The same request with another of its identity cookies, because the visitor of the first is gone.
    fn resume_as(self, cookie: IdentityCookie, random: &mut Random) -> Self {
        let ledger = [Some(self.ledger), self.another].into_iter().flatten().find(|l| l.visitor == cookie.visitor);
        let mut who = Self { asked: self.asked, ..Self::returning(self.now, cookie, ledger, self.claims) };
        who.switch_to_holder(random);
        who
    }

    /// Leaves the cookie's visitor to its member where the request proves another one.
    fn switch_to_holder(&mut self, random: &mut Random) {
        let other = self.cookie.tag.filter(|tag| self.holder().is_some_and(|holder| holder.is(*tag) != Some(true)));
        if let Some(tag) = other
            && !planted::is_active(PlantedBug::LinkOnSharedDevice)
        {
            self.switch(tag, random);
        }
    }

    /// The member at this browser, by proof.
    fn holder(&self) -> Option<&IdClaim> {
        self.claims.iter().find(|c| c.unique)
    }

    /// The unique id that this visitor's holder has: proven now, or remembered from an earlier proof.
    fn unique(&self) -> Option<Cow<'_, [AltHash]>> {
        match self.holder() {
            Some(claim) => Some(claim.hashes().into()),
            None => self.cookie.tag.as_ref().map(|tag| slice::from_ref(tag).into()),
        }
    }

    /// The id that the snapshot's visitor holds, if it is not the one of who is at this browser.
    fn other_holder(&self, held: &[AltHash]) -> Option<AltHash> {
        let here = self.unique()?;
        let first = *held.first()?;
        (same_id(held, &here) == Some(false)).then_some(first)
    }

    /// Claims whose lookups this browser has not read yet.
    fn uncovered(&self) -> impl Iterator<Item = &IdClaim> {
        self.claims.iter().filter(|c| !self.cookie.covered.contains(&c.short()))
    }

    /// Leaves the visitor to the member who holds it (`held`) and goes on as the visitor of who is here: an
    /// earlier one of this browser, else a new one.
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

    /// Who stays where its visitor is gone.
    fn stays(self) -> SurvivingCookie {
        self.arrived?.without(self.cookie.visitor).map(Box::new)
    }

    /// Takes the visitor's own snapshot in. Of one older than this browser or this reader has seen, only the visitor's own
    /// facts are believed: who belongs to it may have been taken back since.
    fn adopt(&mut self, mut snapshot: Snapshot, view: &mut JoinedView) {
        let own = self.cookie.visitor;
        if snapshot.version < self.ledger.highest && !planted::is_active(PlantedBug::AcceptAnOlderVersion) {
            if let Some(sub) = snapshot.profiles.remove(&own) {
                view.add_known(own, KnownVisitor::from_sub(sub));
            }
            // What the newer snapshot said may be something else.
            view.note_missing(MissingParts::ALL);
            return;
        }
        self.ledger.highest = snapshot.version;
        // A tag is of a proof at this browser, and is renewed under the key that is written: what else ties a member may end.
        let said = snapshot.unique.first().filter(|_| self.holder().is_none());
        let renew = |tag| said.filter(|_| same_id(&snapshot.unique, &[tag]) != Some(false)).copied().unwrap_or(tag);
        self.cookie.tag = self.cookie.tag.map(renew);
        view.add_snapshot(snapshot);
    }

    /// What the browser itself knows of its visitor: nothing happened before the request that minted it.
    fn known(&self) -> KnownVisitor {
        let known = self.ledger.known();
        if self.origin == VisitorOrigin::Minted { known.of_new_visitor() } else { known }
    }

    /// Whether the visitor's own snapshot was built when the login that its pending siblings come from was known: of whom
    /// it does not name then, the login was cancelled, or linked nobody.
    fn login_is_held(&self, view: &JoinedView) -> bool {
        let held = |(received, short)| view.named(self.cookie.visitor).is_some_and(|sub| sub.holds(received, short));
        self.cookie.login.is_some_and(held)
    }

    /// What the cookie keeps of this request.
    fn remember(&mut self, mut pending: Vec<VisitorId>, looked_up: &[VisitorId]) {
        // Whom a new proof ties stay before whom the ids of earlier requests did.
        if self.holder().is_some_and(|holder| self.asked.contains(&holder.short())) {
            pending = first_of(pending, looked_up);
        }
        pending.truncate(limits::PENDING_SIBLINGS);
        self.cookie.tag = self.holder().map(|claim| claim.id.hash).or(self.cookie.tag);
        self.cookie.covered.append(&mut self.asked);
        let over = self.cookie.covered.len().saturating_sub(limits::COVERED);
        self.cookie.covered.drain(..over);
        // Whom this login ties waits for it.
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
