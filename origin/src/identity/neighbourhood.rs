//! The neighbourhood of a visitor with changed evidence: all visitors that evidence connects with it, as far as they
//! can change its person, with their stored state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use causeway_shared::base::ids::{AlternateId, Millis, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::facts::evidence::{EvidenceWeight, LinkClass};
use causeway_shared::identity::people::{Evidence, FlagReason, combine_evidence};
use causeway_shared::settings::config::TenantConfig;
use rusqlite::OptionalExtension as _;

use crate::base::integers::unsigned;
use crate::identity::changes::GroupRepresentative;
use crate::identity::changes::TouchedEvidence;
use crate::identity::evidence::{self, EvidenceRow};
use crate::store::tables::visitors;
use crate::store::write_txn::WriteTxn;
use crate::store::{PersonNo, StoreError, TenantNo, visitor_at};

/// The evidence around a visitor, and the stored state of every visitor in it.
#[derive(Debug, Default)]
pub(super) struct EvidenceNeighbourhood {
    pub(super) rows: BTreeMap<(VisitorId, AlternateId), Vec<EvidenceRow>>,
    pub(super) stored: BTreeMap<VisitorId, StoredVisitor>,
    /// Ids that link no visitors.
    pub(super) oversized: BTreeSet<AlternateId>,
    /// Unique ids with visitors outside this neighbourhood; their representatives are inside.
    pub(super) large: BTreeSet<AlternateId>,
    /// Representatives that keep their row, together with the visitors outside.
    pub(super) representatives: BTreeSet<VisitorId>,
    /// Rows that visitors outside point to, with the number of these visitors.
    pub(super) unseen: BTreeMap<PersonNo, u64>,
    /// Whether the neighbourhood has more visitors than the bound.
    pub(super) is_too_large: bool,
}

/// A visitor as the store has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredVisitor {
    pub(super) person: PersonNo,
    pub(super) last_seen: Millis,
    pub(super) weight: EvidenceWeight,
}

/// State that the computations of one transaction share.
#[derive(Debug, Default)]
pub(super) struct ComputedPeople {
    /// Visitors that belong to the right person already.
    pub(super) done: BTreeSet<(TenantNo, VisitorId)>,
    /// Representative of each large id.
    pub(super) representatives: BTreeMap<(TenantNo, AlternateId), GroupRepresentative>,
    /// Ids whose visitors were all informed that the id is an oversized group.
    oversized: BTreeSet<(TenantNo, AlternateId)>,
    /// Whether an id has more visitors than one person can have; counted once per id.
    known_sizes: BTreeMap<(TenantNo, AlternateId), bool>,
}

impl ComputedPeople {
    pub(super) fn new(representatives: BTreeMap<(TenantNo, AlternateId), GroupRepresentative>) -> Self {
        Self { representatives, ..Self::default() }
    }
}

/// Gathers everything that evidence connects with a visitor, breadth first, up to a bound.
///
/// Of visitors with changed evidence, all of it is followed, so that both the old and the new person are found
/// completely; of other visitors, only linking evidence. If rows may be wrong (`of_rows`), earlier decisions are
/// ignored: the links come from the evidence, and the old person from the visitors that point to its row. A large id
/// leads to its representative only.
pub(super) fn gather_evidence(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    start: VisitorId,
    touched: &TouchedEvidence,
    course: &mut ComputedPeople,
) -> Result<EvidenceNeighbourhood, StoreError> {
    let config = &group.rules.tenants.by_no(tenant)?.config;
    let mut walk =
        NeighbourhoodWalk { group, tenant, config, touched, course, around: EvidenceNeighbourhood::default() };
    let large_rows = walk.run(start)?;
    let mut around = walk.around;
    if touched.of_rows || !around.large.is_empty() || !around.oversized.is_empty() {
        let mut seen: BTreeMap<PersonNo, u64> = BTreeMap::new();
        around.stored.values().for_each(|stored| *seen.entry(stored.person).or_default() += 1);
        for (row, seen) in seen {
            let devices = match touched.of_rows {
                true if large_rows.contains(&row) => pointing_visitors(group, tenant, row)?,
                true => 0,
                false => {
                    crate::identity::stored_person::load_person(group, tenant, row)?.map_or(0, |known| known.devices)
                }
            };
            if devices > seen {
                around.unseen.insert(row, devices - seen);
            }
        }
    }
    Ok(around)
}

struct NeighbourhoodWalk<'a, 'g> {
    group: &'a WriteTxn<'g>,
    tenant: TenantNo,
    config: &'a TenantConfig,
    touched: &'a TouchedEvidence,
    course: &'a mut ComputedPeople,
    around: EvidenceNeighbourhood,
}

impl NeighbourhoodWalk<'_, '_> {
    /// Walks the evidence. Returns the rows that more visitors point to than were followed.
    fn run(&mut self, start: VisitorId) -> Result<BTreeSet<PersonNo>, StoreError> {
        let (mut ids, mut rows, mut large_rows) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut flagged = BTreeSet::new();
        let mut waiting = VecDeque::from([start]);
        while let Some(visitor) = waiting.pop_front() {
            if self.around.stored.contains_key(&visitor) {
                continue;
            }
            let stored = match stored_visitor(self.group, self.tenant, visitor)? {
                Some(stored) => stored,
                // Evidence of an unknown visitor links nothing.
                None if self.touched.of_rows => continue,
                None => return Err(StoreError::Corrupt { what: "visitor" }),
            };
            self.around.stored.insert(visitor, stored);
            if self.around.stored.len() > limits::AROUND_VISITORS {
                self.around.is_too_large = true;
                return Ok(large_rows);
            }
            if self.touched.of_rows && rows.insert(stored.person) {
                match some_pointing(self.group, self.tenant, stored.person, self.config.largest_group_limit())? {
                    Some(visitors) => waiting.extend(visitors),
                    None => drop(large_rows.insert(stored.person)),
                }
            }
            let follow_all = !self.touched.of_rows && self.touched.visitors.contains(&(self.tenant, visitor));
            let all = evidence::of_visitor(self.group.tx, self.tenant, visitor)?;
            let links = self.linking(&all);
            for row in all.into_iter().filter(|row| row.evidence.weight > EvidenceWeight::NOTHING) {
                let id = row.evidence.id;
                if row.flag == Some(FlagReason::OversizedGroup) {
                    flagged.insert(id);
                }
                if (follow_all || links.contains(&id)) && ids.insert(id) {
                    waiting.extend(self.led_to(id)?);
                }
                self.around.rows.entry((visitor, id)).or_default().push(row);
            }
        }
        // Ids that were not followed keep their state.
        self.around.oversized.extend(flagged.difference(&ids));
        Ok(large_rows)
    }

    /// Ids that link a visitor with this evidence: every id with enough weight, but only the first of the unique ids
    /// that it logged in with.
    fn linking(&self, rows: &[EvidenceRow]) -> BTreeSet<AlternateId> {
        let mut ties: BTreeMap<AlternateId, Vec<&EvidenceRow>> = BTreeMap::new();
        rows.iter().for_each(|row| ties.entry(row.evidence.id).or_default().push(row));
        let ties = ties.into_iter().filter_map(|(id, rows)| {
            Some((id, self.sure(rows.iter().map(|row| row.evidence))?, rows.iter().all(|row| links_visitors(row))))
        });
        let ties: Vec<(AlternateId, (EvidenceWeight, Millis), bool)> = ties.collect();
        if !self.touched.of_rows {
            return ties.into_iter().filter(|(.., links)| *links).map(|(id, ..)| id).collect();
        }
        let is_login = |id: AlternateId, weight| weight >= EvidenceWeight::LOGIN && self.config.is_unique(id.kind);
        let logins = ties.iter().filter(|(id, (weight, _), _)| is_login(*id, *weight));
        let held = logins.min_by_key(|(id, (_, since), _)| (*since, id.hash)).map(|(id, ..)| *id);
        let links = ties.iter().filter(|(id, (weight, _), _)| !is_login(*id, *weight) || held == Some(*id));
        links.map(|(id, ..)| *id).collect()
    }

    /// Combined weight of the evidence of one visitor and one id, with its start; `None` below the threshold.
    fn sure(&self, evidence: impl IntoIterator<Item = Evidence>) -> Option<(EvidenceWeight, Millis)> {
        combine_evidence(evidence).filter(|(weight, _)| *weight >= self.config.threshold())
    }

    /// The visitors that an id leads to.
    fn led_to(&mut self, id: AlternateId) -> Result<Vec<VisitorId>, StoreError> {
        let key = (self.tenant, id);
        let is_oversized = match self.course.known_sizes.get(&key) {
            Some(is_oversized) => *is_oversized,
            None => {
                let is_oversized =
                    evidence::is_oversized(self.group.tx, self.tenant, id, self.config.group_limit(id.kind))?;
                self.course.known_sizes.insert(key, is_oversized);
                is_oversized
            }
        };
        // If rows may be wrong, only a given representative is trusted.
        let speaks = !self.touched.of_rows || self.course.representatives.contains_key(&key);
        match self.config.class(id.kind, is_oversized) {
            LinkClass::Unique if is_oversized && speaks => self.representative(id),
            LinkClass::OversizedGroup => self.linked_until_now(id),
            LinkClass::Unique | LinkClass::Shared => self.holders(id),
        }
    }

    fn holders(&self, id: AlternateId) -> Result<Vec<VisitorId>, StoreError> {
        let mut found = Vec::new();
        evidence::each_newest(self.group.tx, self.tenant, id, |row| {
            let visitor = row.evidence.visitor;
            // A visitor that counted in an oversized group until now may link again.
            let is_linked = row.counts() && (self.touched.of_rows || row.flag != Some(FlagReason::SecondUnique));
            if is_linked || self.touched.visitors.contains(&(self.tenant, visitor)) {
                found.push(visitor);
            }
            found.len() <= limits::AROUND_VISITORS
        })?;
        if !self.touched.of_rows || !self.config.is_unique(id.kind) {
            return Ok(found);
        }
        // For a visitor that holds another unique id, this id is a second one and does not link it.
        let mut links = Vec::with_capacity(found.len());
        for visitor in found {
            if self.holds(visitor, id)? {
                links.push(visitor);
            }
        }
        Ok(links)
    }

    fn holds(&self, visitor: VisitorId, id: AlternateId) -> Result<bool, StoreError> {
        Ok(self.linking(&evidence::of_visitor(self.group.tx, self.tenant, visitor)?).contains(&id))
    }

    /// Visitors that an oversized group linked until now: none, except when its first excess visitor arrives.
    fn linked_until_now(&mut self, id: AlternateId) -> Result<Vec<VisitorId>, StoreError> {
        self.around.oversized.insert(id);
        if self.touched.of_rows || !self.course.oversized.insert((self.tenant, id)) {
            return Ok(Vec::new());
        }
        let most = self.config.group_limit(id.kind) as usize;
        let (mut others, mut unsure, mut looked_at) = (BTreeMap::<_, Vec<Evidence>>::new(), BTreeSet::new(), 0);
        evidence::each_newest(self.group.tx, self.tenant, id, |row| {
            let visitor = row.evidence.visitor;
            if self.touched.visitors.contains(&(self.tenant, visitor)) {
                return true;
            }
            looked_at += 1;
            if row.counts() && links_visitors(row) {
                others.entry(visitor).or_default().push(row.evidence);
                if row.evidence.weight < self.config.threshold() {
                    unsure.insert(visitor);
                }
            }
            // Evidence too weak to link changes no flag. If its visitors alone are an oversized group, the earlier ones
            // were informed before.
            (!row.counts() || links_visitors(row)) && unsure.len() <= most && looked_at < limits::AROUND_VISITORS
        })?;
        Ok(others.into_iter().filter_map(|(visitor, rows)| self.sure(rows).map(|_| visitor)).collect())
    }

    /// The representative of a large id: a visitor that logged in with it, holds it and belongs to the right person. If
    /// there is none, all its visitors are examined; if these are too many, each is examined alone, and the first
    /// becomes the representative.
    fn representative(&mut self, id: AlternateId) -> Result<Vec<VisitorId>, StoreError> {
        let mut known = self.course.representatives.get(&(self.tenant, id)).copied();
        if known.is_none() {
            evidence::each_newest(self.group.tx, self.tenant, id, |row| {
                let visitor = row.evidence.visitor;
                let key = (self.tenant, visitor);
                let is_right = !self.touched.visitors.contains(&key) || self.course.done.contains(&key);
                // A visitor tied by weak evidence may have lost the connection.
                if row.claims() && row.flag.is_none() && is_right {
                    known = Some(GroupRepresentative { visitor, keeps_row: true });
                }
                known.is_none()
            })?;
            let Some(found) = known else {
                let holders = self.holders(id)?;
                let is_too_much = holders.len() > limits::AROUND_VISITORS;
                if is_too_much {
                    self.around.large.insert(id);
                }
                return Ok(if is_too_much { Vec::new() } else { holders });
            };
            self.course.representatives.insert((self.tenant, id), found);
        }
        self.around.large.insert(id);
        self.around.representatives.extend(known.filter(|found| found.keeps_row).map(|found| found.visitor));
        Ok(known.map(|found| found.visitor).into_iter().collect())
    }
}

/// Whether a valid row links, by its last decision.
fn links_visitors(row: &EvidenceRow) -> bool {
    !matches!(row.flag, Some(FlagReason::SecondUnique | FlagReason::OversizedGroup))
}

/// The visitors that point to a row; `None` if they are more than `most`.
fn some_pointing(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    person: PersonNo,
    most: u32,
) -> Result<Option<Vec<VisitorId>>, StoreError> {
    let read = visitors::visitors_of_person_beyond(most);
    let mut statement = group.tx.prepare_cached(&read)?;
    let rows = statement.query_map((person.0, tenant.0), |row| visitor_at(row, 0))?;
    let found: Vec<VisitorId> = rows.collect::<Result<_, _>>()?;
    Ok((found.len() <= most as usize).then_some(found))
}

/// Number of visitors that point to a row.
fn pointing_visitors(group: &WriteTxn<'_>, tenant: TenantNo, person: PersonNo) -> Result<u64, StoreError> {
    Ok(group
        .tx
        .prepare_cached(visitors::VISITORS_COUNT_OF_PERSON)?
        .query_row((person.0, tenant.0), |row| row.get(0).map(unsigned))?)
}

pub(super) fn stored_visitor(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    visitor: VisitorId,
) -> Result<Option<StoredVisitor>, StoreError> {
    let mut statement = group.tx.prepare_cached(visitors::VISITORS_LINK_OF_ID)?;
    let found = statement.query_row((tenant.0, visitor.as_bytes()), |row| {
        Ok(StoredVisitor {
            person: PersonNo(row.get(0)?),
            last_seen: unsigned(row.get(1)?),
            weight: EvidenceWeight(row.get(2)?),
        })
    });
    Ok(found.optional()?)
}

/// The oldest visitor of a row that is younger than `after` and not excluded by `but`; `devices` is the approximate
/// number of visitors.
pub(super) fn oldest_visitors(
    group: &WriteTxn<'_>,
    tenant: TenantNo,
    person: PersonNo,
    after: Option<VisitorId>,
    devices: u64,
    but: impl Fn(&VisitorId) -> bool,
) -> Result<Option<VisitorId>, StoreError> {
    let after = after.map(|after| after.as_bytes().to_vec()).unwrap_or_default();
    let read = if devices > limits::AROUND_VISITORS as u64 {
        visitors::VISITORS_OF_LARGE_PERSON_BY_ID
    } else {
        visitors::VISITORS_OF_SMALL_PERSON_BY_ID
    };
    let mut statement = group.tx.prepare_cached(read)?;
    for found in statement.query_map((tenant.0, after, person.0), |row| visitor_at(row, 0))? {
        let found = found?;
        if !but(&found) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The most recently active visitors of a row.
pub(super) fn newest_visitors(
    group: &WriteTxn<'_>,
    person: PersonNo,
    most: usize,
) -> Result<Vec<VisitorId>, StoreError> {
    let read = visitors::visitors_newest_of_person(most);
    let mut statement = group.tx.prepare_cached(&read)?;
    let rows = statement.query_map([person.0], |row| visitor_at(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
