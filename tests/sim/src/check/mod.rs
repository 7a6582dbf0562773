//! Invariants of a world, one kind in each file. Some are checked with every event, some after a fold of the origin,
//! and all of them after the world has converged.

pub mod answers;
pub mod budgets;
pub mod caps;
pub mod consent;
pub mod erasure;
pub mod experiments;
pub mod facts;
pub mod offer_codes;
pub mod owners;
pub mod pages;
pub mod people;
pub mod suppressed;
pub mod verified;
pub mod versions;
pub mod views;

use causeway_edge::HttpAnswer;
use causeway_shared::base::ids::{Millis, TenantId};
use causeway_shared::facts::fact::Fact;
use causeway_shared::wire::sync::KvWrite;

use crate::edge::Call;
use crate::world::World;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The checker that found it: the name of its file.
    pub checker: &'static str,
    /// Description of the difference.
    pub what: String,
}

/// The checkers that run during a world, with their state.
#[derive(Debug, Default)]
pub struct Check {
    failure: Option<Failure>,
    /// Placed ads and impressions.
    pub caps: caps::Caps,
    /// Offer codes of the limited offer.
    pub offer_codes: offer_codes::OfferCodes,
    /// Issued and served versions of KV keys.
    pub versions: versions::Versions,
    /// Number of store checks that were due so far.
    looked: u64,
}

impl Check {
    /// Records a failure; only the first one is retained.
    pub fn fail(&mut self, checker: &'static str, what: String) {
        self.failure.get_or_insert(Failure { checker, what });
    }

    /// Returns and clears the failure.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    fn all(&mut self, checker: &'static str, seen: Vec<String>) {
        if let Some(what) = seen.into_iter().next() {
            self.fail(checker, what);
        }
    }

    /// Checks the keys that a call reads.
    pub fn reads(&mut self, call: &Call, keys: &[String]) {
        self.all("consent", consent::reads(call, keys));
        self.all("pages", pages::reads(call, keys));
    }

    /// Checks an answer of the engine.
    pub fn emitted(&mut self, call: &Call, answer: &HttpAnswer) {
        self.all("consent", consent::emitted(call, answer));
        self.all("people", people::emitted(call, answer));
        self.all("people", people::shown(call, answer));
        self.all("people", answers::emitted(call, answer));
        self.all("pages", pages::emitted(call, answer));
        self.all("owners", owners::emitted(call, answer));
        let older = self.versions.used(call, answer);
        self.all("versions", older);
        let older = self.versions.decided(call, answer);
        self.all("versions", older);
        self.all("experiments", experiments::emitted(call, answer));
        let over = self.caps.emitted(call, answer);
        self.all("caps", over);
        let twice = self.offer_codes.emitted(call, answer);
        self.all("offer_codes", twice);
    }

    /// The origin refused an acknowledged fact permanently, which is a failure.
    pub fn refused(&mut self, tenant: &TenantId, fact: &Fact, codes: &[&str]) {
        self.fail("facts", format!("an acknowledged fact of {tenant:?} was refused as {codes:?}: {fact:?}"));
    }

    /// Checks an answer at its browser, whether or not the browser receives it.
    pub fn answered(&mut self, call: &Call, status: u16, body: &[u8]) {
        self.all("pages", pages::answered(call, status, body));
    }

    /// Checks a write that the origin handed out.
    pub fn issued(&mut self, write: &KvWrite) {
        let older = self.versions.issued(write);
        self.all("versions", older);
    }

    /// Checks leases after a sync: `applied` were acknowledged and `publish` are handed out; `now` is the origin's
    /// clock.
    pub fn handed_out(&mut self, now: Millis, applied: &[u64], publish: &[KvWrite]) {
        let twice = self.versions.handed_out(now, applied, publish);
        self.all("versions", twice);
    }

    /// Forgets the leases of keys that a bulk settlement settled, under the lease's number.
    pub fn settled(&mut self, entry: u64, keys: &[String]) {
        self.versions.settled(entry, keys);
    }

    /// Forgets all leases: the origin may have lost its record of them.
    pub fn nothing_leased(&mut self) {
        self.versions.nothing_leased();
    }

    /// Forgets the versions that a location served: its isolate was replaced.
    pub fn fresh_isolate(&mut self, location: usize) {
        self.versions.forget(location);
    }
}

impl World {
    /// Checks the store after every 16th fold.
    pub fn check_store(&mut self) {
        self.check.looked += 1;
        if self.check.looked.is_multiple_of(16) {
            let seen = people::in_store(self);
            self.check.all("people", seen);
            let seen = erasure::done(self);
            self.check.all("erasure", seen);
        }
    }

    /// Checks everything after the world has come to rest.
    ///
    /// # Errors
    /// The first difference.
    pub fn check_converged(&mut self) -> Result<(), Failure> {
        for (checker, look) in [
            ("erasure", erasure::converged as fn(&mut Self) -> Vec<String>),
            ("facts", facts::converged),
            ("budgets", budgets::converged),
            ("caps", caps::converged),
            ("people", people::converged),
            ("people", answers::converged),
            ("views", views::converged),
            ("suppressed", suppressed::converged),
            ("experiments", experiments::converged),
            ("offer_codes", offer_codes::converged),
            ("versions", versions::converged),
            ("pages", pages::converged),
        ] {
            if let Some(what) = look(self).into_iter().next() {
                return Err(Failure { checker, what });
            }
        }
        Ok(())
    }

    /// Checks the report of the last verification.
    ///
    /// # Errors
    /// A key that differs, or an erasure that is not proven.
    pub fn check_verified(&mut self) -> Result<(), Failure> {
        let seen = verified::converged(self);
        seen.map_or(Ok(()), |what| Err(Failure { checker: "verified", what }))
    }
}
