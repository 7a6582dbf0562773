//! What a recognised visitor's request tells: its facts, which its own view counts at once.

use std::collections::BTreeSet;

use super::{IdClaim, IdentityCookie, VisitorOrigin};
use crate::base::ids::{AltHash, FactId, Millis, VisitorId};
use crate::base::random::Random;
use crate::facts::fact::{Fact, FactKind};
use crate::profiles::ledger::Ledger;
use crate::profiles::profile::LaterPage;
use crate::profiles::view::{JoinedView, PersonView};

/// The recognised visitor of a request, and all that is known of its person.
#[derive(Debug, Clone)]
pub struct RecognisedVisitor {
    /// The visitor.
    pub visitor: VisitorId,
    /// How it came to its id.
    pub origin: VisitorOrigin,
    /// All that is known of it and of its person.
    pub view: JoinedView,
    /// The cookie to write.
    pub cookie: IdentityCookie,
    /// Whether the cookie differs from the one of the request, or is due to be written again.
    pub cookie_changed: bool,
    /// The ledger to write.
    pub ledger: Ledger,
    /// The unique id the visitor holds, as far as is known.
    pub unique: Option<AltHash>,
    /// Whether lookups of the request's ids were not read: they may name further visitors of the person.
    pub lacks_lookups: bool,
    /// Visitors that snapshots surely tie to the member that this request proves.
    pub(super) proven: BTreeSet<VisitorId>,
    pub(super) claims: Vec<IdClaim>,
    pub(super) now: Millis,
}

impl RecognisedVisitor {
    /// The facts of this request: an alias for each claim and, when `page` is set, the page view, which the
    /// view and the ledger count at once.
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

    /// Keeps which login the pending siblings come from; after an hour a newer one, as the first may have been lost.
    fn name_login(&mut self, facts: &[Fact]) {
        const LOST_MS: Millis = 3_600_000;
        let login = facts.iter().find(|fact| matches!(fact.what, FactKind::Alias { .. }));
        let stands = self.cookie.login.is_some_and(|(received, _)| self.now.saturating_sub(received) < LOST_MS);
        if let Some(login) = login.filter(|_| !stands && !self.cookie.pending.is_empty()) {
            self.cookie.login = Some((login.received, login.id.short()));
            self.cookie_changed = true;
        }
    }

    /// What the proof in the request gives access to: the visitor, and those surely tied to the member that it proves.
    #[must_use]
    pub fn proven_view(&self) -> PersonView<'_> {
        self.view.of_these(self.visitor, &self.proven)
    }

    /// What counts for the visitor.
    #[must_use]
    pub fn counted(&self) -> PersonView<'_> {
        self.view.of(self.visitor)
    }
}
