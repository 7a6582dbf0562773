//! Requests that wait for a read: the point at which each resumes, its keys, and a bound on the number that wait.

use std::cell::Cell;
use std::rc::Rc;

use causeway_shared::identity::{BegunIdentity, BulkRead, SecondRead};
use causeway_shared::wire::kv_keys;

use crate::cache::attribute_names;
use crate::routes::{AnonymousRoute, ObjectWait, VisitorRoute};
use crate::state::extra_reads::ExtraReads;
use crate::state::request_state::RequestState;

/// Most requests of an isolate that wait at the same time.
const PENDING_REQUESTS: usize = 1_024;
/// Most bytes of their bodies. Parsed bodies need about 16 times as much, and an isolate has 128 MB.
const PENDING_BYTES: usize = 2 * 1_024 * 1_024;

/// A request that waits for a bulk read.
#[derive(Debug)]
pub struct PendingRead {
    pub(crate) state: RequestState,
    pub(crate) extra: ExtraReads,
    pub(crate) resume: ResumePoint,
    pub(crate) permit: PendingPermit,
}

/// A request that waits for an object's answer.
#[derive(Debug)]
pub struct PendingCall {
    pub(crate) wait: Box<dyn ObjectWait>,
    pub(crate) permit: PendingPermit,
}

/// The point at which a request resumes after a read.
#[derive(Debug)]
pub(crate) enum ResumePoint {
    /// The request recognises no visitor, and reads whether the visitors that it names were erased.
    Anonymous(Box<dyn AnonymousRoute>, BulkRead),
    /// After the first read of the visitor's history.
    First(Box<dyn VisitorRoute>, Box<BegunIdentity>),
    /// After the second read, of its siblings.
    Second(Box<dyn VisitorRoute>, Box<SecondRead>),
}

impl ResumePoint {
    /// The keys of the visitor's history that the request reads.
    pub(crate) fn reads(&self) -> &BulkRead {
        match self {
            Self::Anonymous(_, reads) => reads,
            Self::First(_, begun) => begun.reads(),
            Self::Second(_, second) => second.reads(),
        }
    }
}

impl PendingRead {
    /// The KV keys that the request waits for.
    pub(crate) fn keys(&self) -> Vec<String> {
        let Self { state, extra, resume, .. } = self;
        let (reads, tenant) = (resume.reads(), &state.site.id);
        let mut keys = Vec::with_capacity(reads.snapshots.len() + reads.lookups.len() + extra.count());
        keys.extend(reads.snapshots.iter().map(|visitor| kv_keys::snapshot_key(tenant, *visitor)));
        keys.extend(reads.lookups.iter().map(|id| kv_keys::lookup_key(tenant, *id)));
        if extra.pointer {
            keys.extend(kv_keys::standing_keys(tenant));
        }
        keys.extend(extra.version.map(|pointer| kv_keys::catalogue_key(tenant, pointer.version)));
        if extra.names {
            keys.extend(attribute_names::name_keys(tenant));
        }
        keys
    }
}

/// The memory of an isolate that waiting requests may use.
#[derive(Debug, Default, Clone)]
pub(crate) struct PendingBudget(Rc<PendingUse>);

#[derive(Debug, Default)]
struct PendingUse {
    requests: Cell<usize>,
    bytes: Cell<usize>,
}

/// The share of one waiting request; released when the request resumes or ends.
#[derive(Debug)]
pub(crate) struct PendingPermit {
    used: Rc<PendingUse>,
    bytes: usize,
}

impl PendingBudget {
    /// Admits a request that takes `bytes` while it waits; `None` if the budget is used up.
    pub(crate) fn admit(&self, bytes: usize) -> Option<PendingPermit> {
        let (requests, all) = (self.0.requests.get() + 1, self.0.bytes.get() + bytes);
        if requests > PENDING_REQUESTS || all > PENDING_BYTES {
            return None;
        }
        self.0.requests.set(requests);
        self.0.bytes.set(all);
        Some(PendingPermit { used: Rc::clone(&self.0), bytes })
    }
}

impl Drop for PendingPermit {
    fn drop(&mut self) {
        self.used.requests.set(self.used.requests.get() - 1);
        self.used.bytes.set(self.used.bytes.get() - self.bytes);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn requests_over_the_budget_are_refused_until_others_end() {
        let budget = PendingBudget::default();
        let mut permits: Vec<PendingPermit> = (0..PENDING_REQUESTS).map(|_| budget.admit(1).unwrap()).collect();
        assert!(budget.admit(0).is_none(), "no more requests");
        permits.truncate(1);
        assert!(budget.admit(PENDING_BYTES).is_none(), "no more bytes");
        assert!(budget.admit(PENDING_BYTES - 1).is_some());
        drop(permits);
        assert!(budget.admit(PENDING_BYTES).is_some());
    }
}
