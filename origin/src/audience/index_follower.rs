//! Keeps the audience index in step with the store: loads its file or builds it, then rewrites the rows of people that
//! changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_shared::audience::index::AudienceIndex;
use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::HourStamp;
use rusqlite::Connection;

use super::{Audience, AudienceIndexes, KEPT};
use crate::audience::column_file::{self, FileOrigin, FileWrite};
use crate::audience::person_row::{self, PersonRow};
use crate::base::clock;
use crate::ingest::start_error::{StartError, spawn_thread};
use crate::store::names::events;
use crate::store::tables::{meta, people, people_changed};
use crate::store::{self, OpenError, PersonNo, StoreError, TenantNo};

/// Pause when nothing changed.
const LOOK: Duration = Duration::from_millis(20);
/// Pause after the store could not be read.
const AGAIN: Duration = Duration::from_secs(1);
/// People read in one transaction. The bound keeps transactions short, because an open one stops SQLite from truncating
/// its write-ahead log.
const SOME: u32 = 1_000;
/// Changes followed in one transaction. A person that changed several times among them is written once.
const CHANGES: u32 = 2_000;
/// Interval between writes of the index file, unless few rows changed. A newer file leaves less to catch up at the next
/// start.
const KEEP: Duration = Duration::from_secs(600);
/// Number of changes up to which the file counts as recent.
const LITTLE: i64 = 10_000;
/// Number of changes after which the file is written at once, well before the store deletes them.
const MUCH: i64 = KEPT / 5;

/// Follower of one store.
#[derive(Debug)]
pub struct StoreFollower {
    data: PathBuf,
    conn: Connection,
    audience: Audience,
    doing: FollowerState,
    /// State of the store that the index contains.
    of: FileOrigin,
    /// People whose segments expired by that hour and whose rows are not rewritten yet.
    expiring: (HourStamp, Vec<PersonNo>),
    /// Revision of the event names that the index counts; `None` until it is compared with the store.
    event_names: Option<i64>,
    /// People with uncounted events. Their rows are rewritten because a name that is counted now may be among these
    /// events.
    recounting: Vec<PersonNo>,
    /// Newest change that is in the file.
    kept: i64,
    /// Newest change with an erasure.
    erased: i64,
    /// Time of the last failed write of the file.
    failed: Option<Instant>,
}

/// The file of the audience index cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the file of the audience index in {}", data.display())]
pub struct IndexFileError {
    /// The data directory.
    data: PathBuf,
    /// The cause.
    #[source]
    source: std::io::Error,
}

#[derive(Debug)]
enum FollowerState {
    /// The file must be read.
    Nothing,
    /// The index is being built. The value is the last person that was read.
    Building(PersonNo),
    Following,
    /// Following, and writing the file in parallel.
    Keeping(Box<FileWrite>, FileOrigin),
}

impl StoreFollower {
    /// Creates a follower of the store in `data`. All work happens in [`Self::step`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn new(data: &Path, audience: Audience) -> Result<Self, OpenError> {
        let conn = store::open_readonly(data)?;
        let of = FileOrigin { restore: 0, epoch: 0, seq: 0, hour: HourStamp(0) };
        let (data, expiring) = (data.to_owned(), (HourStamp(0), Vec::new()));
        let (event_names, recounting, failed) = (None, Vec::new(), None);
        let doing = FollowerState::Nothing;
        Ok(Self { data, conn, audience, doing, of, expiring, event_names, recounting, kept: 0, erased: 0, failed })
    }

    /// Makes one step. Returns whether the next step is due at once.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn step(&mut self, now: Millis) -> Result<bool, StoreError> {
        match self.doing {
            FollowerState::Nothing => return self.load(now).map(|()| true),
            FollowerState::Building(after) => return self.build(after, now).map(|()| true),
            FollowerState::Following | FollowerState::Keeping(..) => {}
        }
        let hour = HourStamp::at(now);
        if hour.0.saturating_add(1) < self.of.hour.max(self.expiring.0).0 {
            // The clock was ahead: segments left the index that have not expired.
            return self.begin(now).map(|()| true);
        }
        let more = self.follow_event_names(now)? | self.expire(hour)?;
        Ok(self.catch_up(now)? || more)
    }

    /// Applies the store's list of counted event names. Returns whether more rows must be rewritten for it.
    fn follow_event_names(&mut self, now: Millis) -> Result<bool, StoreError> {
        let tx = self.conn.transaction()?;
        let revision = events::names_revision(&tx)?;
        if self.event_names == Some(revision) && self.recounting.is_empty() {
            return Ok(false);
        }
        if self.event_names != Some(revision) {
            let names = events::load_names(&tx)?;
            let mut indexes = self.audience.write();
            let changed = count_events(&mut indexes, names);
            let uncounted = indexes.of_tenant.values().flat_map(AudienceIndex::uncounted);
            self.recounting = uncounted.map(|person| PersonNo(crate::base::integers::signed(person))).collect();
            self.event_names = Some(revision);
            if changed && matches!(self.doing, FollowerState::Keeping(..)) {
                // Partitions that are already in the file count the previous names.
                self.doing = FollowerState::Following;
            }
        }
        let from = self.recounting.len().saturating_sub(SOME as usize);
        let read = read(&tx, self.recounting.get(from..).unwrap_or_default())?;
        tx.commit()?;
        self.recounting.truncate(from);
        let mut indexes = self.audience.write();
        put_person(&mut indexes, &read, now);
        if self.recounting.is_empty() {
            indexes.of_tenant.values_mut().for_each(AudienceIndex::settle);
        }
        Ok(!self.recounting.is_empty())
    }

    /// Loads the index from its file if the file belongs to this store and the store retains all changes since.
    fn load(&mut self, now: Millis) -> Result<(), StoreError> {
        let (of, oldest) = (file_origin(&self.conn)?, oldest_change(&self.conn)?);
        let is_wanted = |it: &FileOrigin| {
            (it.restore, it.epoch) == (of.restore, of.epoch) && it.seq <= of.seq && oldest <= it.seq + 1
        };
        let audience = self.audience.clone();
        let Some((of_tenant, unreadable, of)) = column_file::read(&self.data, is_wanted, || audience.is_stopping())
        else {
            return if audience.is_stopping() { Ok(()) } else { self.begin(now) };
        };
        let mut indexes = self.audience.write();
        (indexes.of_tenant, indexes.unreadable) = (of_tenant, unreadable);
        drop(indexes);
        (self.doing, self.of, self.kept, self.event_names) = (FollowerState::Following, of, of.seq, None);
        Ok(())
    }

    /// Starts a rebuild: all people are read, and then the changes that happen meanwhile.
    fn begin(&mut self, now: Millis) -> Result<(), StoreError> {
        let tx = self.conn.transaction()?;
        self.of = FileOrigin { hour: HourStamp::at(now), ..file_origin(&tx)? };
        let mut indexes = AudienceIndexes { building: (0, 0), ..AudienceIndexes::default() };
        let mut statement = tx.prepare(people::PEOPLE_COUNT_BY_TENANT)?;
        for row in statement.query_map([], |row| Ok((TenantNo(row.get(0)?), row.get::<_, u32>(1)?)))? {
            let (tenant, people) = row?;
            indexes.building.1 += u64::from(people);
            indexes.of_tenant.insert(tenant, AudienceIndex::laid_out_for(people.into()));
        }
        count_events(&mut indexes, events::load_names(&tx)?);
        indexes.of_tenant.values_mut().for_each(AudienceIndex::settle);
        (self.event_names, self.recounting) = (Some(events::names_revision(&tx)?), Vec::new());
        *self.audience.write() = indexes;
        self.expiring = (HourStamp(0), Vec::new());
        // The file contains none of the rebuilt rows.
        (self.doing, self.kept) = (FollowerState::Building(PersonNo(i64::MIN)), i64::MIN);
        Ok(())
    }

    fn build(&mut self, after: PersonNo, now: Millis) -> Result<(), StoreError> {
        let tx = self.conn.transaction()?;
        let mut statement = tx.prepare_cached(people::PEOPLE_PAGE)?;
        let people: Vec<PersonNo> =
            statement.query_map((after.0, SOME), |row| row.get(0).map(PersonNo))?.collect::<Result<_, _>>()?;
        let read = read(&tx, &people)?;
        drop(statement);
        tx.commit()?;
        let mut indexes = self.audience.write();
        let full = put_person(&mut indexes, &read, now);
        indexes.building.0 += people.len() as u64;
        drop(indexes);
        self.doing = people.last().map_or(FollowerState::Following, |last| FollowerState::Building(*last));
        if full { self.begin(now) } else { Ok(()) }
    }

    /// Removes segments that expired by this hour from some rows. Returns whether more rows remain.
    fn expire(&mut self, hour: HourStamp) -> Result<bool, StoreError> {
        if hour <= self.of.hour {
            return Ok(false);
        }
        if self.expiring.1.is_empty() {
            let indexes = self.audience.read();
            let people = indexes.of_tenant.values().flat_map(|people| people.expired(hour));
            self.expiring = (hour, people.map(|person| PersonNo(crate::base::integers::signed(person))).collect());
        }
        let (until, people) = &mut self.expiring;
        let from = people.len().saturating_sub(SOME as usize);
        let tx = self.conn.transaction()?;
        let read = read(&tx, people.get(from..).unwrap_or_default())?;
        tx.commit()?;
        put_person(&mut self.audience.write(), &read, until.start_ms());
        people.truncate(from);
        if people.is_empty() {
            self.of.hour = self.of.hour.max(*until);
        }
        Ok(self.of.hour < hour)
    }

    fn catch_up(&mut self, now: Millis) -> Result<bool, StoreError> {
        let tx = self.conn.transaction()?;
        let (state, oldest) = (file_origin(&tx)?, oldest_change(&tx)?);
        self.erased = tx.query_row(meta::META_INDEX_ERASED, [], |row| row.get(0))?;
        // The store deleted changes that were not followed yet, the store was replaced, or a rebuild was requested.
        if oldest > self.of.seq + 1
            || state.seq < self.of.seq
            || (state.restore, state.epoch) != (self.of.restore, self.of.epoch)
        {
            drop(tx);
            tracing::warn!("the audience index does not belong to this state of the store: rebuilding it");
            return self.begin(now).map(|()| true);
        }
        let mut statement = tx.prepare_cached(people_changed::PEOPLE_CHANGED_AFTER)?;
        let rows: Vec<(i64, PersonNo)> = statement
            .query_map((self.of.seq, CHANGES), |row| Ok((row.get(0)?, PersonNo(row.get(1)?))))?
            .collect::<Result<_, _>>()?;
        drop(statement);
        let people: BTreeSet<PersonNo> = rows.iter().map(|(_, person)| *person).collect();
        let people: Vec<PersonNo> = people.into_iter().collect();
        let read = read(&tx, &people)?;
        tx.commit()?;
        let is_last = rows.len() < CHANGES as usize;
        let mut indexes = self.audience.write();
        let full = put_person(&mut indexes, &read, now);
        self.of.seq = rows.last().map_or(self.of.seq, |(seq, _)| *seq);
        if is_last && self.of.hour >= HourStamp::at(now) {
            indexes.as_of = Some(now);
        }
        drop(indexes);
        if full { self.begin(now).map(|()| true) } else { Ok(!is_last) }
    }

    /// Makes one step of writing the index file. Returns whether another step is needed. The steps alternate with those
    /// of [`Self::step`].
    ///
    /// # Errors
    /// [`IndexFileError`]. The previous file remains.
    pub fn keep(&mut self) -> Result<bool, IndexFileError> {
        let failed = |source| IndexFileError { data: self.data.clone(), source };
        let indexes = self.audience.read();
        match &mut self.doing {
            // A file never contains rows with unsettled event names.
            FollowerState::Following if !self.recounting.is_empty() => return Ok(false),
            FollowerState::Following => {
                let writing = FileWrite::begin(&self.data, self.of, &indexes).map_err(failed)?;
                self.doing = FollowerState::Keeping(Box::new(writing), self.of);
            }
            FollowerState::Keeping(writing, of) => {
                let (done, seq) = (writing.step(&indexes), of.seq);
                match done {
                    Ok(None) => {}
                    Ok(Some(bytes)) => {
                        tracing::info!(bytes, "the file of the audience index is written");
                        (self.doing, self.kept) = (FollowerState::Following, seq);
                        return Ok(false);
                    }
                    Err(source) => {
                        self.doing = FollowerState::Following;
                        return Err(failed(source));
                    }
                }
            }
            FollowerState::Nothing | FollowerState::Building(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the file must be rewritten: many rows changed since, or it may hold an erased visitor.
    pub(super) fn is_old(&self) -> bool {
        self.is_beyond(LITTLE) || self.kept < self.erased
    }

    /// Whether more than `changes` changes are not in the file.
    fn is_beyond(&self, changes: i64) -> bool {
        self.of.seq.saturating_sub(self.kept) > changes
    }

    /// Follows the store until [`Audience::stop`].
    fn live(mut self) {
        let mut written = Instant::now();
        while !self.audience.is_stopping() {
            let due = written.elapsed() > KEEP && self.is_old() || self.is_beyond(MUCH);
            let due = due && self.failed.is_none_or(|at| at.elapsed() > KEEP);
            let mut wait = LOOK;
            let mut more = self.step(clock::now()).unwrap_or_else(|e| {
                tracing::error!(error = %crate::base::error_chain(&e), "the audience index cannot follow the store");
                wait = AGAIN;
                false
            });
            if due || matches!(self.doing, FollowerState::Keeping(..)) {
                more |= self.keep_or_say();
                written = Instant::now();
            }
            if !more {
                std::thread::park_timeout(wait);
            }
        }
        // Catch up with the changes committed until now. Anything longer is left to the next start.
        while matches!(self.doing, FollowerState::Following | FollowerState::Keeping(..))
            && self.catch_up(clock::now()).unwrap_or_default()
        {}
        if self.is_old() {
            while self.keep_or_say() {}
        }
    }

    pub(super) fn keep_or_say(&mut self) -> bool {
        self.keep().unwrap_or_else(|e| {
            tracing::error!(error = %crate::base::error_chain(&e), "the audience index is not stored");
            self.failed = Some(Instant::now());
            false
        })
    }
}

/// Starts the thread that follows the store in `data` until [`Audience::stop`].
///
/// # Errors
/// [`StartError`].
pub fn start_follower(data: &Path, audience: Audience) -> Result<JoinHandle<()>, StartError> {
    let follower = StoreFollower::new(data, audience)?;
    spawn_thread("audience", move || follower.live())
}

/// Current state of the store.
fn file_origin(conn: &Connection) -> Result<FileOrigin, StoreError> {
    let of = |row: &rusqlite::Row<'_>| {
        Ok(FileOrigin { restore: row.get(0)?, epoch: row.get(1)?, seq: row.get(2)?, hour: HourStamp(0) })
    };
    Ok(conn.prepare_cached(meta::META_INDEX_STATE)?.query_row([], of)?)
}

/// Oldest change that the store retains; 0 if it retains none.
fn oldest_change(conn: &Connection) -> Result<i64, StoreError> {
    Ok(conn.prepare_cached(people_changed::PEOPLE_CHANGED_OLDEST)?.query_row([], |row| row.get(0))?)
}

/// Outcome of reading a person for its row.
enum PersonRead {
    Someone(Box<PersonRow>),
    /// The person has no visitor any more.
    Gone,
    /// Its stored values cannot be read.
    Unreadable(TenantNo),
}

type Read = Vec<(PersonNo, PersonRead)>;

/// Reads some people. A person whose stored values cannot be decoded is reported as unreadable and does not affect the
/// others.
fn read(conn: &Connection, people: &[PersonNo]) -> Result<Read, StoreError> {
    let one = |person: &PersonNo| {
        let mut unreadable = 0;
        let found = match person_row::read_if_whole(conn, *person, &mut unreadable)? {
            Some(someone) => PersonRead::Someone(Box::new(someone)),
            None if unreadable == 0 => PersonRead::Gone,
            None => PersonRead::Unreadable(
                conn.prepare_cached(people::PEOPLE_TENANT_OF_PERSON)?
                    .query_row([person.0], |row| row.get(0).map(TenantNo))?,
            ),
        };
        Ok((*person, found))
    };
    people.iter().map(one).collect()
}

/// Sets the event names that each tenant's index counts. Returns whether a count changed.
fn count_events(indexes: &mut AudienceIndexes, names: BTreeMap<TenantNo, BTreeSet<String>>) -> bool {
    indexes.event_names = names;
    let AudienceIndexes { of_tenant, event_names, .. } = indexes;
    let none = BTreeSet::new();
    let of = |(tenant, people): (&TenantNo, &mut AudienceIndex)| {
        people.count_events(event_names.get(tenant).unwrap_or(&none))
    };
    of_tenant.iter_mut().map(of).fold(false, |changed, one| changed | one)
}

/// Writes the rows of people that were read. Returns whether an index had no room for one of them.
fn put_person(indexes: &mut AudienceIndexes, read: &Read, now: Millis) -> bool {
    let mut full = false;
    for (person, found) in read {
        let number = crate::base::integers::unsigned(person.0);
        indexes.unreadable.remove(person);
        let (someone, tenant) = match found {
            PersonRead::Someone(someone) => (Some(someone), Some(someone.tenant)),
            PersonRead::Gone => (None, None),
            PersonRead::Unreadable(tenant) => {
                indexes.unreadable.insert(*person, *tenant);
                (None, None)
            }
        };
        // The person's number may have belonged to another tenant.
        for (no, people) in &mut indexes.of_tenant {
            if tenant != Some(*no) {
                people.remove(number);
            }
        }
        if let Some(someone) = someone {
            let AudienceIndexes { of_tenant, event_names, .. } = &mut *indexes;
            let people = of_tenant.entry(someone.tenant).or_insert_with(|| {
                let mut people = AudienceIndex::laid_out_for(0);
                people.count_events(event_names.get(&someone.tenant).unwrap_or(&BTreeSet::new()));
                people.settle();
                people
            });
            full |= someone.row(now, |row| people.put(row)).is_err();
        }
    }
    full
}
