//! What must never happen, each kind in a file of its own. Some are looked at with every event, some when the origin has
//! folded, all of them when the world has converged.

pub mod answers;
pub mod budgets;
pub mod caps;
pub mod consent;
pub mod erasure;
pub mod experiments;
pub mod facts;
pub mod owners;
pub mod pages;
pub mod people;
pub mod suppressed;
pub mod units;
pub mod verified;
pub mod versions;
pub mod views;

use causeway_edge::HttpAnswer;
use causeway_shared::base::ids::{Millis, TenantId};
use causeway_shared::facts::fact::Fact;
use causeway_shared::wire::sync::KvWrite;

use crate::edge::Call;
use crate::world::World;

/// Something that must never happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which checker saw it: the name of its file.
    pub checker: &'static str,
    /// What it saw.
    pub what: String,
}

/// All checkers.
#[derive(Debug, Default)]
pub struct Check {
    failure: Option<Failure>,
    /// Ads placed and seen.
    pub caps: caps::Caps,
    /// Units of the limited offer.
    pub units: units::Units,
    /// KV keys and their versions.
    pub versions: versions::Versions,
    /// Stores looked at so far.
    looked: u64,
}

impl Check {
    /// Keeps the first failure.
    pub fn fail(&mut self, checker: &'static str, what: String) {
        self.failure.get_or_insert(Failure { checker, what });
    }

    /// The failure, if there was one.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    fn all(&mut self, checker: &'static str, seen: Vec<String>) {
        if let Some(what) = seen.into_iter().next() {
            self.fail(checker, what);
        }
    }

    /// A call asks for these keys.
    pub fn reads(&mut self, call: &Call, keys: &[String]) {
        self.all("consent", consent::reads(call, keys));
        self.all("pages", pages::reads(call, keys));
    }

    /// The engine has made an answer.
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
        let twice = self.units.emitted(call, answer);
        self.all("units", twice);
    }

    /// The origin refused a fact for good.
    pub fn refused(&mut self, tenant: &TenantId, fact: &Fact, codes: &[&str]) {
        self.fail("facts", format!("an acknowledged fact of {tenant:?} was refused as {codes:?}: {fact:?}"));
    }

    /// An answer reached its browser, or got lost on the last bit of the way.
    pub fn answered(&mut self, call: &Call, status: u16, body: &[u8]) {
        self.all("pages", pages::answered(call, status, body));
    }

    /// The origin handed out a write.
    pub fn issued(&mut self, write: &KvWrite) {
        let older = self.versions.issued(write);
        self.all("versions", older);
    }

    /// The origin took what a sync says is written, and handed out more; `now` is its own clock.
    pub fn handed_out(&mut self, now: Millis, applied: &[u64], publish: &[KvWrite]) {
        let twice = self.versions.handed_out(now, applied, publish);
        self.all("versions", twice);
    }

    /// The origin may have lost what it handed out.
    pub fn nothing_leased(&mut self) {
        self.versions.nothing_leased();
    }

    /// A location has forgotten what it served.
    pub fn fresh_isolate(&mut self, location: usize) {
        self.versions.forget(location);
    }
}

impl World {
    /// Looks at the store after a fold, now and then.
    pub fn check_store(&mut self) {
        self.check.looked += 1;
        if self.check.looked.is_multiple_of(16) {
            let seen = people::in_store(self);
            self.check.all("people", seen);
            let seen = erasure::done(self);
            self.check.all("erasure", seen);
        }
    }

    /// Looks at everything, once nothing moves any more.
    ///
    /// # Errors
    /// The first thing that should be otherwise.
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
            ("units", units::converged),
            ("versions", versions::converged),
            ("pages", pages::converged),
        ] {
            if let Some(what) = look(self).into_iter().next() {
                return Err(Failure { checker, what });
            }
        }
        Ok(())
    }

    /// Looks at what the last verification came to.
    ///
    /// # Errors
    /// A key that is not as it should be, or an erasure that is not proven.
    pub fn check_verified(&mut self) -> Result<(), Failure> {
        let seen = verified::converged(self);
        seen.map_or(Ok(()), |what| Err(Failure { checker: "verified", what }))
    }
}
