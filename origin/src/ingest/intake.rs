//! Intake: turns a sync into checked facts and one durable record of the log. The fold finds facts that were counted
//! before.

use causeway_shared::base::ids::VisitorId;
use causeway_shared::facts::fact::FactKind;
use std::collections::BTreeSet;

use causeway_shared::base::ids::{FactId, Millis};
use causeway_shared::base::limits;
use causeway_shared::facts::fact::Fact;
use causeway_shared::wire::facts;
use causeway_shared::wire::sync::{FilterReason, ReadResult, RejectedFact, SyncRequest, SyncResponse, UNKNOWN_TENANT};

use crate::base::attribution::{Attribution, RETENTION};
use crate::store::TenantNo;
use crate::store::tenants::Tenants;

/// One sync, decoded and checked.
#[derive(Debug, Clone, Default)]
pub struct IncomingSync {
    /// Facts within their bounds, in order of arrival.
    pub facts: Vec<CheckedFact>,
    /// The batches for the log, without batches of which no fact was accepted.
    pub batches: Vec<Vec<u8>>,
    /// Whether the facts come from the admin API.
    pub admin: bool,
    /// Author and reason of facts from the admin API.
    pub attribution: Option<Attribution>,
    /// The time that the facts were checked against.
    pub taken: Millis,
    /// Refused batches and facts.
    pub rejected: Vec<RejectedFact>,
    /// Number of facts that repeat a fact of the same sync.
    pub repeats: u64,
    /// The sync's requests to the outbox.
    pub outbox: OutboxRequest,
    /// Number of facts that the edge lost.
    pub lost: u64,
    /// Number of queue messages that the edge gave up.
    pub dead: u64,
    /// Number of requests that the edge did not count, by reason in the order of [`FilterReason::ALL`].
    pub filtered: [u64; FilterReason::ALL.len()],
}

impl IncomingSync {
    /// The answer to the edge once the facts are durable. Drains `rejected`, which is bounded on the wire, so the
    /// caller counts refused facts first.
    pub fn answer(&mut self) -> SyncResponse {
        // Whole batches come first, within any bound, because an edge must retain those of an unknown tenant.
        self.rejected.sort_by_key(|rejected| rejected.index.is_some());
        let accepted = self.facts.len() as u64 - self.repeats;
        let rejected = self.rejected.drain(..).take(limits::SYNC_FACTS).collect();
        SyncResponse { accepted, duplicate: self.repeats, rejected, ..SyncResponse::default() }
    }
}

/// The requests of a sync to the outbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutboxRequest {
    /// Outbox entries that were written to the KV.
    pub applied: Vec<u64>,
    /// Number of outbox entries requested.
    pub drain: u16,
    /// Values read back from the KV.
    pub read: Vec<ReadResult>,
}

impl OutboxRequest {
    /// Whether the sync requests nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.applied.is_empty() && self.drain == 0 && self.read.is_empty()
    }
}

/// A fact within its bounds.
#[derive(Debug, Clone)]
pub struct CheckedFact {
    /// The tenant that the fact belongs to.
    pub tenant: TenantNo,
    /// The fact.
    pub fact: Fact,
}

/// One record of the log: the facts of one sync.
#[derive(Debug, Clone)]
pub struct LogRecord {
    /// Number of the record in the log; 0 for a record that was never there.
    pub seq: u64,
    /// The facts, in order of arrival.
    pub facts: Vec<CheckedFact>,
    /// Whether the facts come from the admin API.
    pub admin: bool,
    /// Author and reason of facts from the admin API.
    pub attribution: Option<Attribution>,
    /// Size of the received facts, in bytes.
    pub bytes: usize,
    /// For a record that was never in the log: the highest record that may contain data that it erases.
    pub in_log: u64,
    /// Whether the record belongs to a bulk operation, whose keys have a lower priority than news.
    pub bulk: bool,
}

impl LogRecord {
    /// A record of facts that were never in the log.
    #[must_use]
    pub fn of(facts: Vec<CheckedFact>) -> Self {
        Self { seq: 0, facts, admin: true, attribution: None, bytes: 0, in_log: 0, bulk: false }
    }

    /// A record as in [`Self::of`], with its attribution.
    #[must_use]
    pub fn with_attribution(facts: Vec<CheckedFact>, said: Attribution) -> Self {
        Self { attribution: Some(said), ..Self::of(facts) }
    }

    /// A record as in [`Self::with_attribution`], of a bulk operation.
    #[must_use]
    pub fn bulk(facts: Vec<CheckedFact>, said: Attribution) -> Self {
        Self { bulk: true, ..Self::with_attribution(facts, said) }
    }

    /// Whether the record erases visitors for their tenant's `forget_after_days`.
    #[must_use]
    pub fn is_by_retention(&self) -> bool {
        self.attribution.as_ref().is_some_and(|said| said.by == RETENTION)
    }

    /// Load of the record on the backlog, in facts; a long fact counts as several.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.facts.len().max(self.bytes / FACT_BYTES)
    }
}

/// Code of the refusal of a fact that only the admin API may send.
const NOT_ADMIN: &str = "not_admin";

/// Size that most facts do not exceed, in bytes.
const FACT_BYTES: usize = 256;

/// Decodes and checks an edge's facts. The same batches and time give the same facts.
#[must_use]
pub fn read(request: SyncRequest, tenants: &Tenants, now: Millis) -> IncomingSync {
    read_all(IncomingSync::default(), request, tenants, now)
}

/// Decodes and checks facts from the admin API.
#[must_use]
pub fn read_admins(request: SyncRequest, tenants: &Tenants, now: Millis) -> IncomingSync {
    read_all(IncomingSync { admin: true, ..IncomingSync::default() }, request, tenants, now)
}

fn read_all(from: IncomingSync, request: SyncRequest, tenants: &Tenants, now: Millis) -> IncomingSync {
    let mut incoming = IncomingSync {
        taken: now,
        outbox: OutboxRequest { applied: request.applied, drain: request.drain, read: request.read },
        lost: request.lost,
        dead: request.dead,
        filtered: request.filtered,
        ..from
    };
    for (batch, bytes) in (0u32..).zip(request.facts) {
        let before = incoming.facts.len();
        read_batch(&mut incoming, batch, &bytes, tenants);
        if incoming.facts.len() > before {
            incoming.batches.push(bytes);
        }
    }
    let mut ids: BTreeSet<(TenantNo, FactId)> = BTreeSet::new();
    let repeats = incoming.facts.iter().filter(|c| !ids.insert((c.tenant, c.fact.id))).count();
    incoming.repeats = repeats as u64;
    incoming
}

fn read_batch(incoming: &mut IncomingSync, batch: u32, bytes: &[u8], tenants: &Tenants) {
    let (now, admin) = (incoming.taken, incoming.admin);
    let refuse = |index, code: &str, message: String| RejectedFact { batch, index, code: code.to_owned(), message };
    let (tenant, facts) = match facts::decode_each(bytes) {
        Ok(decoded) => decoded,
        Err(e) => return incoming.rejected.push(refuse(None, e.code(), e.to_string())),
    };
    let (known, before) = (tenants.by_name(tenant.as_str()), incoming.rejected.len());
    for (index, fact) in (0u32..).zip(facts) {
        // An administrator's fact counts after the data that it concerns, even if a fast clock dated that data.
        let when = |fact: &Fact| if admin { now.max(fact.received) } else { now };
        match fact.map(|fact| (fact.check(when(&fact)), fact)) {
            Ok((Ok(()), fact)) if fact.is_admins() && !admin => {
                let message = "only the admin API may send this fact".to_owned();
                incoming.rejected.push(refuse(Some(index), NOT_ADMIN, message));
            }
            Ok((Ok(()), fact)) => match known {
                Some(tenant) => incoming.facts.push(CheckedFact { tenant: tenant.no, fact }),
                // A batch whose facts are all too old does not get here, so the edge does not retain it.
                None => {
                    let message = "this origin has no tenant of that name".to_owned();
                    incoming.rejected.truncate(before);
                    return incoming.rejected.push(refuse(None, UNKNOWN_TENANT, message));
                }
            },
            Ok((Err(e), _)) => incoming.rejected.push(refuse(Some(index), e.code(), e.to_string())),
            Err(e) => incoming.rejected.push(refuse(Some(index), e.code(), e.to_string())),
        }
    }
}

/// Whether a fact is an observation without a visitor.
#[must_use]
pub fn is_anonymous(fact: &Fact) -> bool {
    fact.visitor == VisitorId::ANONYMOUS && matches!(fact.what, FactKind::Action { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, Origin, fact, page, visitor};
    use causeway_shared::base::ids::{AlternateId, VisitorId};
    use causeway_shared::facts::fact::{ErasureScope, FactKind};

    #[test]
    fn a_fact_too_old_to_be_known_is_refused_and_said_so() {
        let mut origin = Origin::new();
        let old = page(visitor(1), 1, NOW - limits::FACT_AGE_MS - 1);
        let answer = origin.send("demo", &[old, page(visitor(1), 2, NOW)]);
        assert_eq!((answer.accepted, answer.rejected.len()), (1, 1));
        assert_eq!(answer.rejected[0].code, "too_old");
        assert_eq!((answer.rejected[0].batch, answer.rejected[0].index), (0, Some(0)));
    }

    #[test]
    fn a_fact_counts_once_whatever_else_its_batch_holds() {
        let mut origin = Origin::new();
        let (a, b) = (page(visitor(1), 1, NOW), page(visitor(1), 2, NOW));
        let mut again = a.clone();
        again.received = NOW + 1;
        let answer = origin.send("demo", &[a.clone(), b, a, again]);
        assert_eq!((answer.accepted, answer.duplicate), (2, 2));
        assert_eq!(origin.profile("demo", visitor(1)).totals().pages, 2);
    }

    #[test]
    fn tenants_do_not_share_fact_ids_and_unknown_ones_are_refused() {
        let mut origin = Origin::new();
        let fact = page(visitor(1), 1, NOW);
        assert_eq!(origin.send("demo", std::slice::from_ref(&fact)).accepted, 1);
        assert_eq!(origin.send("other", std::slice::from_ref(&fact)).accepted, 1);
        let answer = origin.send("nobody", &[fact]);
        assert_eq!(answer.accepted, 0);
        assert_eq!(answer.rejected[0].code, "unknown_tenant");
        assert_eq!(answer.rejected[0].index, None);
    }

    #[test]
    fn a_batch_of_an_unknown_tenant_with_acceptable_facts_is_refused_whole_and_not_logged() {
        let origin = Origin::new();
        let old = |n| page(visitor(1), n, NOW - limits::FACT_AGE_MS - 1);
        let batches = [
            origin.batch("demo", &[old(1), page(visitor(1), 2, NOW)]),
            origin.batch("nobody", &[old(1), page(visitor(1), 2, NOW)]),
            origin.batch("nobody", &[old(1), old(2)]),
        ];
        let request = SyncRequest { facts: batches.to_vec(), ..SyncRequest::default() };
        let mut incoming = read(request, &origin.rules.tenants, NOW);
        assert_eq!((incoming.facts.len(), &incoming.batches), (1, &batches[..1].to_vec()));
        let rejected = incoming.answer().rejected;
        let rejected: Vec<_> = rejected.iter().map(|r| (r.batch, r.index, r.code.as_str())).collect();
        let old = |batch, index| (batch, Some(index), "too_old");
        assert_eq!(rejected, [(1, None, UNKNOWN_TENANT), old(0, 0), old(2, 0), old(2, 1)]);
    }

    #[test]
    fn a_fact_of_a_later_release_takes_none_of_its_batch_with_it() {
        let mut origin = Origin::new();
        let facts: Vec<_> = (0..3).map(|n| page(visitor(1), n, NOW)).collect();
        let mut batch = origin.batch("demo", &facts);
        // The second fact's `"k": 0` becomes `"k": 23`, with the same number of bytes.
        let kinds: Vec<usize> =
            batch.windows(3).enumerate().filter(|(_, three)| three == b"\x61k\x00").map(|(at, _)| at).collect();
        batch[kinds[1] + 2] = 23;
        let answer = origin.sync(SyncRequest { facts: vec![batch], ..SyncRequest::default() });
        assert_eq!((kinds.len(), answer.accepted, answer.rejected.len()), (3, 2, 1));
        assert_eq!((answer.rejected[0].code.as_str(), answer.rejected[0].index), ("unknown_form", Some(1)));
    }

    #[test]
    fn an_edge_neither_cancels_nor_erases_an_alternate_id_nor_makes_pairs() {
        let mut origin = Origin::new();
        let id = origin.member("demo", "ann");
        let erasure = |visitor| {
            let what = FactKind::Erasure { scope: ErasureScope::Visitor, id: Some(id), also: Vec::new() };
            fact(visitor, 2, NOW, what)
        };
        let said = [
            page(visitor(1), 1, NOW),
            fact(visitor(1), 3, NOW, FactKind::Cancellation { id }),
            erasure(VisitorId::ANONYMOUS),
            erasure(visitor(2)),
            crate::testing::alias(visitor(1), 4, NOW, AlternateId::pair(visitor(1), visitor(2))),
        ];
        let answer = origin.send("demo", &said);
        let refused: Vec<_> = answer.rejected.iter().map(|r| (r.code.as_str(), r.index)).collect();
        assert_eq!(refused, [("not_admin", Some(1)), ("not_admin", Some(2)), ("bad_kind", Some(4))]);
        assert_eq!(answer.accepted, 2);
    }

    #[test]
    fn a_batch_that_cannot_be_read_is_named_and_its_neighbours_count() {
        let mut origin = Origin::new();
        let good = origin.batch("demo", &[page(visitor(1), 1, NOW)]);
        let answer = origin.sync(SyncRequest { facts: vec![vec![0x9f; 40], good], ..SyncRequest::default() });
        assert_eq!(answer.accepted, 1);
        assert_eq!(answer.rejected[0].code, "malformed");
    }
}
