//! A small world in memory: browsers with cookie jars, an edge that drives the identity steps, a queue, an origin
//! that folds facts and publishes, and a KV that remembers every value a key had. What is late or lost is up
//! to the test.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};

use causeway_shared::base::ids::{
    AltHash, AlternateId, Epoch, FactId, Micros, Millis, SnapshotVersion, TenantId, VisitorId,
};
use causeway_shared::base::limits;
use causeway_shared::base::random::Random;
use causeway_shared::facts::evidence::{EvidenceWeight, LinkClass};
use causeway_shared::facts::fact::{Fact, FactKind, PURCHASE};
use causeway_shared::identity::people::{Evidence, link_people};
use causeway_shared::identity::{
    BulkRead, BulkResult, IdClaim, IdentityCookie, IdentityRequest, IdentityStep, RecognisedVisitor, SurvivingCookie,
    VisitorOrigin as Came, begin_identity,
};
use causeway_shared::keys::cookie;
use causeway_shared::keys::key_ring::{KeyRing, KeyStage, RingKey};
use causeway_shared::profiles::membership::{Membership, VisitorCut};
use causeway_shared::profiles::profile::{Profile, ProfileTotals};
use causeway_shared::profiles::view::{JoinedView, Snapshot, StoredValue};
use causeway_shared::wire;
use causeway_shared::wire::kv_keys::{lookup_key, snapshot_key};

use crate::common::{MEMBER, NOW, PARTNER, alternate};

/// The snapshot of a younger visitor is not read.
pub(crate) const PUBLISH_DELAY_MS: u64 = 10_000;

/// One browser's cookie jar.
#[derive(Debug, Clone, Default)]
pub(crate) struct Browser {
    pub(crate) identity: Option<String>,
    pub(crate) recent: Option<String>,
}

/// One call of decide, and its faults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Visit {
    /// The member that is logged in, by proof.
    pub(crate) member: Option<u8>,
    /// An id of the kind that is not unique.
    pub(crate) partner: Option<u8>,
    /// Whether the call counts no page.
    pub(crate) no_page: bool,
    /// Whether the answer's cookies are lost.
    pub(crate) lose_cookies: bool,
    /// Whether the first read fails or is late.
    pub(crate) fail_first: bool,
    /// Whether the second read fails or is late.
    pub(crate) fail_second: bool,
    /// The number of versions by which the KV's values are outdated.
    pub(crate) stale: usize,
}

impl Visit {
    pub(crate) fn anonymous() -> Self {
        Self::default()
    }

    pub(crate) fn member(n: u8) -> Self {
        Self { member: Some(n), ..Self::default() }
    }

    fn claims(&self) -> Vec<IdClaim> {
        let claim = |kind, n: u8| IdClaim {
            id: alternate(kind, n),
            also: Vec::new(),
            unique: kind == MEMBER,
            proven: kind == MEMBER,
        };
        let member = self.member.map(|n| claim(MEMBER, n));
        member.into_iter().chain(self.partner.map(|n| claim(PARTNER, n))).collect()
    }
}

/// The answer of a call.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) visitor: VisitorId,
    pub(crate) came: Came,
    pub(crate) reads: usize,
    pub(crate) view: JoinedView,
    pub(crate) unique: Option<AltHash>,
    pub(crate) bridged: bool,
    /// The snapshots read by this request.
    pub(crate) read: Vec<Snapshot>,
}

impl Answer {
    pub(crate) fn totals(&self) -> ProfileTotals {
        self.view.of(self.visitor).totals()
    }

    /// Pages and purchases of the view.
    pub(crate) fn shown(&self) -> (u64, u64) {
        (self.totals().pages, self.totals().purchases)
    }

    pub(crate) fn devices(&self) -> u32 {
        self.view.of(self.visitor).devices()
    }

    pub(crate) fn members(&self) -> BTreeSet<VisitorId> {
        self.view.of(self.visitor).members().iter().copied().collect()
    }
}

/// A minimal store of the origin.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    facts: BTreeMap<FactId, Fact>,
    evidence: BTreeMap<(VisitorId, AlternateId), Evidence>,
    decisions: BTreeMap<VisitorId, Membership>,
    persons: Vec<BTreeSet<VisitorId>>,
    unique: BTreeMap<VisitorId, AlternateId>,
    counter: u64,
    /// The unique id of each visitor at the time of each version.
    pub(crate) held: BTreeMap<(SnapshotVersion, VisitorId), AltHash>,
}

impl Origin {
    fn take(&mut self, fact: Fact) {
        if let FactKind::Alias { id, .. } = fact.what {
            let (visitor, at) = (fact.visitor, fact.received);
            let row = self.evidence.entry((visitor, id)).or_insert(Evidence {
                visitor,
                id,
                source: 1,
                weight: EvidenceWeight::LOGIN,
                first: at,
                last: at,
                cancelled: None,
            });
            row.first = row.first.min(at);
            row.last = row.last.max(at);
        }
        self.facts.entry(fact.id).or_insert(fact);
    }

    pub(crate) fn own(&self, visitor: VisitorId) -> ProfileTotals {
        Profile::of(self.facts.values().filter(|f| f.visitor == visitor)).totals()
    }

    pub(crate) fn person(&self, visitor: VisitorId) -> BTreeSet<VisitorId> {
        self.persons.iter().find(|p| p.contains(&visitor)).cloned().unwrap_or_else(|| BTreeSet::from([visitor]))
    }

    /// The visitors last seen with an alternate id, newest first.
    pub(crate) fn lookup(&self, id: AlternateId) -> Vec<VisitorId> {
        let mut seen: Vec<&Evidence> = self.evidence.values().filter(|e| e.id == id).collect();
        seen.sort_by_key(|e| std::cmp::Reverse((e.last, e.visitor)));
        seen.into_iter().map(|e| e.visitor).take(limits::LOOKUP_VISITORS).collect()
    }

    fn withdrawn(&self) -> BTreeSet<VisitorId> {
        self.facts.values().filter(|f| f.what == FactKind::Withdrawal).map(|f| f.visitor).collect()
    }

    /// Cancels the evidence that ties a visitor to an alternate id.
    pub(crate) fn cancel(&mut self, visitor: VisitorId, id: AlternateId, at: Millis) {
        if let Some(row) = self.evidence.get_mut(&(visitor, id)) {
            row.cancelled = Some(at);
        }
    }

    /// Computes the people again; each changed person gets a new epoch.
    fn decide(&mut self) {
        let gone = self.withdrawn();
        let evidence: Vec<Evidence> = self.evidence.values().filter(|e| !gone.contains(&e.visitor)).copied().collect();
        let class = |id: AlternateId| if id.kind == MEMBER { LinkClass::Unique } else { LinkClass::Shared };
        let found = link_people(&evidence, class, EvidenceWeight::LOGIN);
        let mut persons: Vec<BTreeSet<VisitorId>> = found.people.into_iter().map(|p| p.members).collect();
        let linked: BTreeSet<VisitorId> = persons.iter().flatten().copied().collect();
        let everybody: BTreeSet<VisitorId> = self.facts.values().map(|f| f.visitor).collect();
        let alone = everybody.iter().filter(|v| !linked.contains(v) && !gone.contains(v));
        persons.extend(alone.map(|v| BTreeSet::from([*v])));
        self.unique = found.unique;
        for person in &persons {
            let before: Vec<&Membership> = person.iter().filter_map(|v| self.decisions.get(v)).collect();
            if before.len() == person.len() && before.iter().all(|m| m.admits == *person) {
                continue;
            }
            let admits = person.clone();
            let named = before.iter().flat_map(|m| m.admits.iter().chain(m.cuts.keys()));
            let cuts = named
                .filter(|v| !person.contains(v))
                .map(|v| (*v, VisitorCut { at: NOW, gone: gone.contains(v) }))
                .collect();
            self.counter += 1;
            let devices = u32::try_from(person.len()).unwrap_or(u32::MAX);
            let decision = Membership { epoch: Epoch(self.counter), devices, admits, cuts, ..Membership::default() };
            for visitor in person {
                self.decisions.insert(*visitor, decision.clone());
            }
        }
        self.persons = persons;
    }

    fn snapshot(&mut self, visitor: VisitorId) -> Option<Snapshot> {
        let membership = self.decisions.get(&visitor)?.clone();
        self.counter += 1;
        let version = SnapshotVersion { restore: 0, counter: self.counter };
        let sub = |v: &VisitorId| {
            let facts = self.facts.values().filter(|f| f.visitor == *v);
            (*v, Profile::of(facts).sub_profile(version, *v == visitor))
        };
        let profiles = membership.admits.iter().map(sub).collect();
        for v in membership.admits.iter() {
            if let Some(id) = self.unique.get(v) {
                self.held.insert((version, *v), id.hash);
            }
        }
        let unique = self.unique_of_person(&membership.admits);
        Some(Snapshot { version, visitor, unique, membership, profiles, best: None })
    }

    fn unique_of_person(&self, person: &BTreeSet<VisitorId>) -> Vec<AltHash> {
        person.iter().find_map(|v| self.unique.get(v)).map(|id| id.hash).into_iter().collect()
    }
}

/// The state outside the browsers.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Millis,
    pub(crate) origin: Origin,
    /// Pages viewed under each visitor, whether or not the facts have arrived.
    pub(crate) pages: BTreeMap<VisitorId, u64>,
    /// Number of visitors minted so far.
    pub(crate) minted: usize,
    random: Random,
    tenant: TenantId,
    keys: KeyRing,
    queue: Vec<Fact>,
    kv: BTreeMap<String, Vec<String>>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            now: NOW,
            origin: Origin::default(),
            pages: BTreeMap::new(),
            minted: 0,
            random: Random::new([7; 32]),
            tenant: "pub".parse().unwrap(),
            keys: KeyRing(vec![RingKey { id: 1, stage: KeyStage::Active, secret: [3; 32].into() }]),
            queue: Vec::new(),
            kv: BTreeMap::new(),
        }
    }

    /// One call of decide, with the edge's steps. `None` if the visitor was forgotten; its cookies are then removed.
    pub(crate) fn visit(&mut self, browser: &mut Browser, visit: &Visit) -> Option<Answer> {
        self.now += 1_000;
        let arrival = IdentityRequest {
            now: self.now,
            cookie: self.open(cookie::IDENTITY, browser.identity.as_ref(), wire::cookies::decode_identity),
            others: Vec::new(),
            ledger: self.open(cookie::LEDGER, browser.recent.as_ref(), wire::cookies::decode_ledger),
            claims: visit.claims(),
            publish_delay_ms: PUBLISH_DELAY_MS,
        };
        let begun = begin_identity(arrival, &mut self.random);
        let mut read = Vec::new();
        let first = self.read(begun.reads(), visit.fail_first, visit.stale, &mut read);
        let mut reads = usize::from(!begun.reads().is_empty());
        let second = match begun.after_first(first, &mut self.random) {
            IdentityStep::Second(second) => second,
            IdentityStep::Forgotten(surviving) => return self.forget(browser, surviving),
        };
        reads += usize::from(!second.reads().is_empty());
        assert!(second.reads().lookups.is_empty(), "a third read would be needed");
        let found = self.read(second.reads(), visit.fail_second, visit.stale, &mut read);
        let mut recognised = match second.finish(found) {
            Ok(recognised) => recognised,
            Err(surviving) => return self.forget(browser, surviving),
        };
        let facts = recognised.observe(!visit.no_page, &mut self.random);
        self.minted += usize::from(recognised.origin == Came::Minted);
        *self.pages.entry(recognised.visitor).or_default() += u64::from(!visit.no_page);
        self.queue.extend(facts);
        if !visit.lose_cookies {
            self.store(browser, &recognised);
        }
        let bridged = recognised.counted().is_bridged();
        let RecognisedVisitor { visitor, origin: came, view, unique, .. } = recognised;
        Some(Answer { visitor, came, reads, view, unique, bridged, read })
    }

    fn open<T>(
        &self,
        name: &str,
        value: Option<&String>,
        read: impl Fn(&[u8]) -> Result<T, wire::WireError>,
    ) -> Option<T> {
        let opened = cookie::open(&self.keys, name, &self.tenant, value?).unwrap();
        Some(read(&opened.payload).unwrap())
    }

    fn store(&self, browser: &mut Browser, recognised: &RecognisedVisitor) {
        if recognised.cookie_changed {
            browser.identity = Some(self.seal(cookie::IDENTITY, &wire::cookies::encode_identity(&recognised.cookie)));
        }
        browser.recent = Some(self.seal(cookie::LEDGER, &wire::cookies::encode_ledger(&recognised.ledger)));
    }

    fn seal(&self, name: &str, payload: &[u8]) -> String {
        let value = cookie::seal_cookie(&self.keys, name, &self.tenant, payload).unwrap();
        assert!(value.len() <= limits::COOKIE_BYTES, "{name} has {} bytes", value.len());
        value
    }

    /// Removes the cookies of a forgotten visitor and writes the surviving one.
    fn forget(&self, browser: &mut Browser, surviving: SurvivingCookie) -> Option<Answer> {
        match surviving {
            Some(cookie) => {
                browser.identity = Some(self.seal(cookie::IDENTITY, &wire::cookies::encode_identity(&cookie)));
            }
            None => *browser = Browser::default(),
        }
        None
    }

    fn read(&self, reads: &BulkRead, failed: bool, stale: usize, read: &mut Vec<Snapshot>) -> BulkResult {
        assert!(reads.snapshots.len() + reads.lookups.len() <= limits::KV_KEYS);
        let mut found = BulkResult { failed, ..BulkResult::default() };
        if failed {
            return found;
        }
        let value = |key: &str| {
            let values = self.kv.get(key)?;
            values.get(values.len().checked_sub(stale + 1)?)
        };
        for visitor in &reads.snapshots {
            let key = snapshot_key(&self.tenant, *visitor);
            let Some(text) = value(&key) else { continue };
            let stored = wire::kv::decode_stored(&key, *visitor, text.as_bytes()).unwrap();
            if let StoredValue::Snapshot(snapshot) = &stored {
                read.push((**snapshot).clone());
            }
            found.stored.insert(*visitor, stored);
        }
        for id in &reads.lookups {
            let key = lookup_key(&self.tenant, *id);
            let visitors = value(&key).map(|text| wire::kv::decode_lookup(&key, text.as_bytes()).unwrap());
            found.lookups.extend(visitors.unwrap_or_default());
        }
        found
    }

    /// Reports an event of the browser's visitor: a purchase.
    pub(crate) fn purchase(&mut self, browser: &Browser, micros: i64) {
        let what = FactKind::Track {
            name: PURCHASE.to_owned(),
            value: Some(Micros::new(micros)),
            properties: None,
            order: None,
        };
        self.event(browser, what);
    }

    /// Withdraws the visitor's permission.
    pub(crate) fn withdraw(&mut self, browser: &mut Browser) {
        self.event(browser, FactKind::Withdrawal);
        *browser = Browser::default();
    }

    fn event(&mut self, browser: &Browser, what: FactKind) {
        let Some(visitor) = self.visitor_of(browser) else { return };
        let id = match what {
            FactKind::Withdrawal => FactId::of_withdrawal(visitor),
            _ => FactId::from_bytes(self.random.draw()),
        };
        self.queue.push(Fact { position: 0, id, visitor, received: self.now, at: self.now, what });
    }

    pub(crate) fn visitor_of(&self, browser: &Browser) -> Option<VisitorId> {
        self.cookie_of(browser).map(|c| c.visitor)
    }

    pub(crate) fn cookie_of(&self, browser: &Browser) -> Option<IdentityCookie> {
        self.open(cookie::IDENTITY, browser.identity.as_ref(), wire::cookies::decode_identity)
    }

    /// Delivers the queue's facts to the origin, last first, because the order must not matter.
    pub(crate) fn deliver(&mut self) {
        let facts = std::mem::take(&mut self.queue);
        facts.into_iter().rev().for_each(|f| self.origin.take(f));
    }

    /// Lets the origin decide, and publishes all snapshots, tombstones and lookups.
    pub(crate) fn publish(&mut self) {
        self.origin.decide();
        let visitors: BTreeSet<VisitorId> = self.origin.facts.values().map(|f| f.visitor).collect();
        visitors.iter().for_each(|v| self.put(*v));
        let ids: BTreeSet<AlternateId> = self.origin.evidence.keys().map(|(_, id)| *id).collect();
        for id in ids {
            let key = lookup_key(&self.tenant, id);
            let value = wire::kv::encode_lookup(&key, &self.origin.lookup(id)).unwrap();
            self.kv.entry(key).or_default().push(value);
        }
    }

    /// Lets the origin decide, and publishes the snapshot of one visitor only.
    pub(crate) fn publish_one(&mut self, visitor: VisitorId) {
        self.origin.decide();
        self.put(visitor);
    }

    fn put(&mut self, visitor: VisitorId) {
        let key = snapshot_key(&self.tenant, visitor);
        let stored = if self.origin.withdrawn().contains(&visitor) {
            Some(StoredValue::Tombstone)
        } else {
            self.origin.snapshot(visitor).map(|s| StoredValue::Snapshot(Box::new(s)))
        };
        if let Some(stored) = stored {
            let value = wire::kv::encode_stored(&key, &stored).unwrap();
            self.kv.entry(key).or_default().push(value);
        }
    }

    /// Delivers and publishes everything.
    pub(crate) fn settle(&mut self) {
        self.deliver();
        self.publish();
    }

    /// Removes a visitor's key from the KV.
    pub(crate) fn expire(&mut self, visitor: VisitorId) {
        self.kv.remove(&snapshot_key(&self.tenant, visitor));
    }

    pub(crate) fn wait(&mut self, ms: Millis) {
        self.now += ms;
    }
}
