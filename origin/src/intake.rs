//! Intake: what a sync brings becomes facts that were never seen before.
//!
//! [`read`] is pure and runs beside the writer: bytes to checked facts. [`take`] runs in the writer's
//! transaction: it counts each FactId once (invariant 7) and answers for every call by itself, so that a
//! bad fact never sinks its neighbours.

use std::collections::BTreeMap;

use causeway_shared::fact::Fact;
use causeway_shared::ids::{Millis, VisitorId};
use causeway_shared::limits;
use causeway_shared::wire::facts;
use causeway_shared::wire::sync::{Rejected, SyncRequest, SyncResponse};

use crate::group::Group;
use crate::segments::Extend;
use crate::store::{StoreError, TenantNo, signed};
use crate::tenants::Tenants;

/// One sync, decoded and checked.
#[derive(Debug, Clone, Default)]
pub struct Incoming {
    /// Facts within their bounds, in the order they came.
    pub facts: Vec<Checked>,
    /// Batches and facts that were refused.
    pub rejected: Vec<Rejected>,
    /// Outbox entries that the KV has.
    pub applied: Vec<u64>,
    /// Outbox entries wanted.
    pub drain: u16,
    /// Facts the edge lost.
    pub lost: u64,
    /// Messages the edge gave up on.
    pub dead: u64,
    /// Segments whose expiry is to move, as only the writer can say to when.
    pub extends: Vec<Extend>,
}

/// A fact within its bounds.
#[derive(Debug, Clone)]
pub struct Checked {
    /// Whose identity space it belongs to.
    pub tenant: TenantNo,
    /// The fact.
    pub fact: Fact,
    /// The fact as the store keeps it.
    pub body: Vec<u8>,
}

/// New facts by visitor, in the order they came.
pub type Fresh = BTreeMap<(TenantNo, VisitorId), Vec<Fact>>;

/// Decodes and checks a sync's facts.
#[must_use]
pub fn read(request: SyncRequest, tenants: &Tenants, now: Millis) -> Incoming {
    let mut incoming = Incoming {
        applied: request.applied,
        drain: request.drain,
        lost: request.lost,
        dead: request.dead,
        ..Incoming::default()
    };
    for (batch, bytes) in (0u32..).zip(&request.facts) {
        read_batch(&mut incoming, batch, bytes, tenants, now);
    }
    incoming
}

fn read_batch(incoming: &mut Incoming, batch: u32, bytes: &[u8], tenants: &Tenants, now: Millis) {
    let refuse = |index, code: &str, message: String| Rejected { batch, index, code: code.to_owned(), message };
    let decoded = match facts::decode(bytes) {
        Ok(decoded) => decoded,
        Err(e) => return incoming.rejected.push(refuse(None, e.code(), e.to_string())),
    };
    let Some(tenant) = tenants.by_name(decoded.tenant.as_str()) else {
        let message = "this origin has no tenant of that name".to_owned();
        return incoming.rejected.push(refuse(None, "unknown_tenant", message));
    };
    for (index, fact) in (0u32..).zip(decoded.facts) {
        match fact.check(now) {
            Ok(()) => {
                let body = facts::encode_one(&fact);
                incoming.facts.push(Checked { tenant: tenant.no, fact, body });
            }
            Err(e) => incoming.rejected.push(refuse(Some(index), e.code(), e.to_string())),
        }
    }
}

/// Counts the facts that are new. Answers come in the order of the calls, without their KV writes yet.
///
/// # Errors
/// [`StoreError`]; then nothing of the group may be kept.
pub fn take(group: &Group<'_>, calls: &[Incoming]) -> Result<(Fresh, Vec<SyncResponse>), StoreError> {
    let mut fresh = Fresh::new();
    let mut answers = Vec::with_capacity(calls.len());
    for call in calls {
        // The list has a bound on the wire; the metrics count them all.
        let rejected = call.rejected.iter().take(limits::SYNC_FACTS).cloned().collect();
        let mut answer = SyncResponse { rejected, ..SyncResponse::default() };
        for checked in &call.facts {
            if is_new(group, checked)? {
                answer.accepted += 1;
                let place = fresh.entry((checked.tenant, checked.fact.visitor)).or_default();
                place.push(checked.fact.clone());
            } else {
                answer.duplicate += 1;
            }
        }
        answers.push(answer);
    }
    Ok((fresh, answers))
}

fn is_new(group: &Group<'_>, checked: &Checked) -> Result<bool, StoreError> {
    const KEEP: &str = "INSERT OR IGNORE INTO facts (tenant, id, received, body) VALUES (?1, ?2, ?3, ?4)";
    let fact = &checked.fact;
    let inserted = group.tx.prepare_cached(KEEP)?.execute((
        checked.tenant.0,
        fact.id.as_bytes(),
        signed(fact.received),
        &checked.body,
    ))?;
    Ok(inserted == 1)
}

/// Forgets up to `most` FactIds older than any fact that is still accepted. Returns how many went.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn forget(conn: &rusqlite::Connection, now: Millis, most: u32) -> Result<usize, StoreError> {
    const FORGET: &str = "DELETE FROM facts WHERE (tenant, id) IN
        (SELECT tenant, id FROM facts WHERE received < ?1 LIMIT ?2)";
    let horizon = now.saturating_sub(limits::FACT_ID_KEEP_MS);
    Ok(conn.prepare_cached(FORGET)?.execute((signed(horizon), most))?)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::testing::{NOW, Origin, page, visitor};

    #[test]
    fn fact_ids_outlive_the_oldest_fact_accepted_by_five_days() {
        let mut origin = Origin::new();
        let old = page(visitor(1), 1, NOW - limits::FACT_AGE_MS);
        assert_eq!(origin.send("demo", std::slice::from_ref(&old)).accepted, 1);
        let later = NOW + 5 * 86_400_000;
        assert_eq!(forget(&origin.conn, later, 100).unwrap(), 0);
        assert_eq!(forget(&origin.conn, later + 1, 100).unwrap(), 1);
    }

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
    fn field_15_a_fact_counts_once_whatever_else_its_batch_holds() {
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
    fn a_batch_that_cannot_be_read_is_named_and_its_neighbours_count() {
        let mut origin = Origin::new();
        let good = origin.batch("demo", &[page(visitor(1), 1, NOW)]);
        let answer = origin.sync(SyncRequest { facts: vec![vec![0x9f; 40], good], ..SyncRequest::default() });
        assert_eq!(answer.accepted, 1);
        assert_eq!(answer.rejected[0].code, "malformed");
    }
}
