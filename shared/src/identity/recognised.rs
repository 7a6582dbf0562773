//! The facts of a recognised visitor's request, which the request's own view counts at once.

use std::collections::BTreeSet;

use super::{IdClaim, IdentityCookie, VisitorOrigin};
use crate::base::ids::{AltHash, FactId, Millis, VisitorId};
use crate::base::random::Random;
use crate::facts::fact::{Fact, FactKind};
use crate::profiles::ledger::Ledger;
use crate::profiles::profile::LaterPage;
use crate::profiles::view::{JoinedView, PersonView};

/// The recognised visitor of a request, and everything known about its person.
#[derive(Debug, Clone)]
pub struct RecognisedVisitor {
    /// The visitor.
    pub visitor: VisitorId,
    /// How the request got its visitor.
    pub origin: VisitorOrigin,
    /// The view of its person.
    pub view: JoinedView,
    /// The cookie to write.
    pub cookie: IdentityCookie,
    /// Whether the cookie differs from the request's cookie or is due to be written again.
    pub cookie_changed: bool,
    /// The ledger to write.
    pub ledger: Ledger,
    /// The unique id of the visitor's member, as far as is known.
    pub unique: Option<AltHash>,
    /// Whether a lookup of the request's ids was not read; it may name further visitors of the person.
    pub lacks_lookups: bool,
    /// Visitors that snapshots surely tie to the member that this request proves.
    pub(super) proven: BTreeSet<VisitorId>,
    pub(super) claims: Vec<IdClaim>,
    pub(super) now: Millis,
}

impl RecognisedVisitor {
    /// Returns the facts of this request: an alias per claim and, if `page` is set, a page view, which the view and the
    /// ledger count at once.
    pub fn observe(&mut self, page: bool, random: &mut Random) -> Vec<Fact> {
        let (now, visitor) = (self.now, self.visitor);
        let session = page.then(|| self.ledger.session_at(now, random.draw()));
        let aliases = self.claims.iter().map(|c| FactKind::Alias { id: c.id, also: c.also.clone(), proven: c.proven });
        let observed = aliases.chain(session.map(|session| FactKind::Page { session }));
        let fact =
            |what| Fact { position: 0, id: FactId::from_bytes(random.draw()), visitor, received: now, at: now, what };
        let facts: Vec<Fact> = observed.map(fact).collect();
        self.name_login(&facts);
        if let (Some(session), Some(seen)) = (session, facts.last()) {
            self.ledger.remember(LaterPage { received: now, short: seen.id.short(), session });
            self.view.add_known(visitor, self.ledger.known());
        }
        facts
    }

    /// Remembers the login that the pending siblings come from. After an hour a newer login replaces it, because the
    /// first may have been lost.
    fn name_login(&mut self, facts: &[Fact]) {
        const LOST_MS: u64 = 3_600_000;
        let login = facts.iter().find(|fact| matches!(fact.what, FactKind::Alias { .. }));
        let stands = self.cookie.login.is_some_and(|(received, _)| self.now.saturating_sub(received) < LOST_MS);
        if let Some(login) = login.filter(|_| !stands && !self.cookie.pending.is_empty()) {
            self.cookie.login = Some((login.received, login.id.short()));
            self.cookie_changed = true;
        }
    }

    /// The view that the request's proof gives access to: the visitor, and visitors surely tied to the proven member.
    #[must_use]
    pub fn proven_view(&self) -> PersonView<'_> {
        self.view.of_these(self.visitor, &self.proven)
    }

    /// The view that counts for the visitor.
    #[must_use]
    pub fn counted(&self) -> PersonView<'_> {
        self.view.of(self.visitor)
    }
}
