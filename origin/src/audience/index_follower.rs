//! Keeps the columns as the store is: reads their file or builds them, and then writes the rows anew of whoever changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_shared::audience::index::AudienceIndex;
use causeway_shared::base::ids::Millis;
use causeway_shared::base::time::HourStamp;
use rusqlite::Connection;

use super::{Audience, Columns, KEPT};
use crate::audience::column_file::{self, FileOrigin, FileWrite};
use crate::audience::person_row::{self, PersonRow};
use crate::base::clock;
use crate::store::names::events;
use crate::store::{self, PersonNo, StoreError, TenantNo};

/// How long it waits when nothing changed.
const LOOK: Duration = Duration::from_millis(20);
/// And when the store could not be read.
const AGAIN: Duration = Duration::from_secs(1);
/// People read in one transaction, so that none holds the store's log back.
const SOME: u32 = 1_000;
/// Changes followed in one, which are seen together: of a person that changed often among them one row is written.
const CHANGES: u32 = 2_000;
/// How often the columns are written to their file, unless little changed: whoever reads the file catches up with less soon.
const KEEP: Duration = Duration::from_secs(600);
/// What little is.
const LITTLE: i64 = 10_000;
/// They are written before so many changes: the store forgets them.
const MUCH: i64 = KEPT / 5;

/// Follows one store.
#[derive(Debug)]
pub struct StoreFollower {
    data: PathBuf,
    conn: Connection,
    audience: Audience,
    doing: FollowerState,
    /// What the columns are of.
    of: FileOrigin,
    /// Who was in a segment that is over by an hour, and is still to be read.
    expiring: (HourStamp, Vec<PersonNo>),
    /// Which names of events the columns count, by its revision; `None` until it is compared.
    event_names: Option<i64>,
    /// People with uncounted events, whose rows are written again as a name that is counted now may be among them.
    recounting: Vec<PersonNo>,
    /// The newest change that is in the file.
    kept: i64,
    /// The newest with which somebody was erased.
    erased: i64,
    /// When the file could not be written.
    failed: Option<Instant>,
}

#[derive(Debug)]
enum FollowerState {
    /// The file is to be read.
    Nothing,
    /// The columns are being built; this person was the last that was read.
    Building(i64),
    Following,
    /// Following, and writing the file beside.
    Keeping(Box<FileWrite>, FileOrigin),
}

impl StoreFollower {
    /// Follows the store in `data`: the steps do all.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn new(data: &Path, audience: Audience) -> Result<Self, StoreError> {
        let conn = store::open_readonly(data)?;
        let of = FileOrigin { restore: 0, epoch: 0, seq: 0, hour: HourStamp(0) };
        let (data, expiring) = (data.to_owned(), (HourStamp(0), Vec::new()));
        let (event_names, recounting, failed) = (None, Vec::new(), None);
        let doing = FollowerState::Nothing;
        Ok(Self { data, conn, audience, doing, of, expiring, event_names, recounting, kept: 0, erased: 0, failed })
    }

    /// One step; whether another is to follow at once.
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
            // By a clock that was ahead segments ended that have not.
            return self.begin(now).map(|()| true);
        }
        let more = self.follow_event_names(now)? | self.expire(hour)?;
        Ok(self.catch_up(now)? || more)
    }

    /// Counts the names of events that the store says; whether there are more rows to be written again for that.
    fn follow_event_names(&mut self, now: Millis) -> Result<bool, StoreError> {
        let tx = self.conn.transaction()?;
        let revision = events::names_revision(&tx)?;
        if self.event_names == Some(revision) && self.recounting.is_empty() {
            return Ok(false);
        }
        if self.event_names != Some(revision) {
            let names = events::load_names(&tx)?;
            let mut columns = self.audience.write();
            let changed = count_events(&mut columns, names);
            let uncounted = columns.of_tenant.values().flat_map(AudienceIndex::uncounted);
            self.recounting = uncounted.map(|person| PersonNo(crate::base::integers::signed(person))).collect();
            self.event_names = Some(revision);
            if changed && matches!(self.doing, FollowerState::Keeping(..)) {
                // Rows that are in the file already are of other names.
                self.doing = FollowerState::Following;
            }
        }
        let from = self.recounting.len().saturating_sub(SOME as usize);
        let read = read(&tx, self.recounting.get(from..).unwrap_or_default())?;
        tx.commit()?;
        self.recounting.truncate(from);
        let mut columns = self.audience.write();
        put_person(&mut columns, &read, now);
        if self.recounting.is_empty() {
            columns.of_tenant.values_mut().for_each(AudienceIndex::settle);
        }
        Ok(!self.recounting.is_empty())
    }

    /// From the file, if it is of this store and the store still has the changes since.
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
        let mut columns = self.audience.write();
        (columns.of_tenant, columns.unreadable) = (of_tenant, unreadable);
        drop(columns);
        (self.doing, self.of, self.kept, self.event_names) = (FollowerState::Following, of, of.seq, None);
        Ok(())
    }

    /// Begins anew: all people are read, and what changes meanwhile after them.
    fn begin(&mut self, now: Millis) -> Result<(), StoreError> {
        let tx = self.conn.transaction()?;
        self.of = FileOrigin { hour: HourStamp::at(now), ..file_origin(&tx)? };
        let mut columns = Columns { building: (0, 0), ..Columns::default() };
        let mut statement = tx.prepare("SELECT tenant, count(*) FROM people GROUP BY tenant")?;
        for row in statement.query_map([], |row| Ok((TenantNo(row.get(0)?), row.get::<_, u32>(1)?)))? {
            let (tenant, people) = row?;
            columns.building.1 += u64::from(people);
            columns.of_tenant.insert(tenant, AudienceIndex::laid_out_for(people.into()));
        }
        count_events(&mut columns, events::load_names(&tx)?);
        columns.of_tenant.values_mut().for_each(AudienceIndex::settle);
        (self.event_names, self.recounting) = (Some(events::names_revision(&tx)?), Vec::new());
        *self.audience.write() = columns;
        self.expiring = (HourStamp(0), Vec::new());
        // What is not in the file is all of them.
        (self.doing, self.kept) = (FollowerState::Building(i64::MIN), i64::MIN);
        Ok(())
    }

    fn build(&mut self, after: i64, now: Millis) -> Result<(), StoreError> {
        const READ: &str = "SELECT person FROM people WHERE person > ?1 ORDER BY person LIMIT ?2";
        let tx = self.conn.transaction()?;
        let mut statement = tx.prepare_cached(READ)?;
        let people: Vec<PersonNo> =
            statement.query_map((after, SOME), |row| row.get(0).map(PersonNo))?.collect::<Result<_, _>>()?;
        let read = read(&tx, &people)?;
        drop(statement);
        tx.commit()?;
        let mut columns = self.audience.write();
        let full = put_person(&mut columns, &read, now);
        columns.building.0 += people.len() as u64;
        drop(columns);
        self.doing = people.last().map_or(FollowerState::Following, |last| FollowerState::Building(last.0));
        if full { self.begin(now) } else { Ok(()) }
    }

    /// Takes segments that are over by this hour out of some rows; whether there are more.
    fn expire(&mut self, hour: HourStamp) -> Result<bool, StoreError> {
        if hour <= self.of.hour {
            return Ok(false);
        }
        if self.expiring.1.is_empty() {
            let columns = self.audience.read();
            let people = columns.of_tenant.values().flat_map(|people| people.expired(hour));
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
        const READ: &str = "SELECT seq, person FROM people_changed WHERE seq > ?1 ORDER BY seq LIMIT ?2";
        let tx = self.conn.transaction()?;
        let (state, oldest) = (file_origin(&tx)?, oldest_change(&tx)?);
        self.erased = tx.query_row("SELECT columns_erased FROM meta", [], |row| row.get(0))?;
        // Somebody forgot changes that were not followed yet, the store is another one, or they were asked to.
        if oldest > self.of.seq + 1
            || state.seq < self.of.seq
            || (state.restore, state.epoch) != (self.of.restore, self.of.epoch)
        {
            drop(tx);
            tracing::warn!("the columns of audiences are not of this state of the store: they are built anew");
            return self.begin(now).map(|()| true);
        }
        let mut statement = tx.prepare_cached(READ)?;
        let rows: Vec<(i64, i64)> = statement
            .query_map((self.of.seq, CHANGES), |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        drop(statement);
        let people: BTreeSet<PersonNo> = rows.iter().map(|(_, person)| PersonNo(*person)).collect();
        let people: Vec<PersonNo> = people.into_iter().collect();
        let read = read(&tx, &people)?;
        tx.commit()?;
        let is_last = rows.len() < CHANGES as usize;
        let mut columns = self.audience.write();
        let full = put_person(&mut columns, &read, now);
        self.of.seq = rows.last().map_or(self.of.seq, |(seq, _)| *seq);
        if is_last && self.of.hour >= HourStamp::at(now) {
            columns.as_of = Some(now);
        }
        drop(columns);
        if full { self.begin(now).map(|()| true) } else { Ok(!is_last) }
    }

    /// One step of writing the columns to their file; whether another is to follow. It goes on beside the other steps.
    ///
    /// # Errors
    /// [`StoreError::Directory`]: the file cannot be written. The one before stays.
    pub fn keep(&mut self) -> Result<bool, StoreError> {
        let failed = |source| StoreError::Directory { path: self.data.clone(), source };
        let columns = self.audience.read();
        match &mut self.doing {
            // A file has no names in doubt.
            FollowerState::Following if !self.recounting.is_empty() => return Ok(false),
            FollowerState::Following => {
                let keeping = FileWrite::begin(&self.data, self.of, &columns).map_err(failed)?;
                self.doing = FollowerState::Keeping(Box::new(keeping), self.of);
            }
            FollowerState::Keeping(keeping, of) => {
                let (done, seq) = (keeping.step(&columns), of.seq);
                match done {
                    Ok(None) => {}
                    Ok(Some(bytes)) => {
                        tracing::info!(bytes, "the columns of audiences are in their file");
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

    /// Whether the file is to be written anew: much changed since, or somebody in it may be erased.
    pub(super) fn is_old(&self) -> bool {
        self.is_beyond(LITTLE) || self.kept < self.erased
    }

    /// Whether more than so many changes are not in the file.
    fn is_beyond(&self, changes: i64) -> bool {
        self.of.seq.saturating_sub(self.kept) > changes
    }

    /// Follows until it is told to end.
    fn live(mut self) {
        let mut kept = Instant::now();
        while !self.audience.is_stopping() {
            let due = kept.elapsed() > KEEP && self.is_old() || self.is_beyond(MUCH);
            let due = due && self.failed.is_none_or(|at| at.elapsed() > KEEP);
            let mut wait = LOOK;
            let mut more = self.step(clock::now()).unwrap_or_else(|e| {
                tracing::error!(error = %crate::base::error_chain(&e), "the columns of audiences cannot follow the store");
                wait = AGAIN;
                false
            });
            if due || matches!(self.doing, FollowerState::Keeping(..)) {
                more |= self.keep_or_say();
                kept = Instant::now();
            }
            if !more {
                std::thread::park_timeout(wait);
            }
        }
        // What was committed until now; what takes longer is begun anew.
        while matches!(self.doing, FollowerState::Following | FollowerState::Keeping(..))
            && self.catch_up(clock::now()).unwrap_or_default()
        {}
        if self.is_old() {
            while self.keep_or_say() {}
        }
    }

    pub(super) fn keep_or_say(&mut self) -> bool {
        self.keep().unwrap_or_else(|e| {
            tracing::error!(error = %crate::base::error_chain(&e), "the columns of audiences cannot be written to their file");
            self.failed = Some(Instant::now());
            false
        })
    }
}

/// Starts a thread that follows the store in `data`, until the columns are told to stop.
///
/// # Errors
/// [`StoreError`], or when the operating system gives no thread.
pub fn start_follower(data: &Path, audience: Audience) -> Result<JoinHandle<()>, StoreError> {
    let follower = StoreFollower::new(data, audience)?;
    let spawned = std::thread::Builder::new().name("audience".to_owned()).spawn(move || follower.live());
    spawned.map_err(|source| StoreError::Directory { path: data.to_owned(), source })
}

/// What the store is now.
fn file_origin(conn: &Connection) -> Result<FileOrigin, StoreError> {
    // The number also when all changes were forgotten: they go on.
    const STATE: &str = "SELECT restore_epoch, columns_epoch,
        ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'people_changed'), 0) FROM meta";
    let of = |row: &rusqlite::Row<'_>| {
        Ok(FileOrigin { restore: row.get(0)?, epoch: row.get(1)?, seq: row.get(2)?, hour: HourStamp(0) })
    };
    Ok(conn.prepare_cached(STATE)?.query_row([], of)?)
}

/// The oldest change that the store has; 0 where it has none.
fn oldest_change(conn: &Connection) -> Result<i64, StoreError> {
    const OLDEST: &str = "SELECT ifnull(min(seq), 0) FROM people_changed";
    Ok(conn.prepare_cached(OLDEST)?.query_row([], |row| row.get(0))?)
}

/// A person as it was read for its row.
enum PersonRead {
    Someone(Box<PersonRow>),
    /// It has no visitor any more.
    Gone,
    /// It cannot be read.
    Unreadable(TenantNo),
}

type Read = Vec<(PersonNo, PersonRead)>;

/// A row that is not what this release writes costs its own person: audiences are asked of all others.
fn read(conn: &Connection, people: &[PersonNo]) -> Result<Read, StoreError> {
    const TENANT: &str = "SELECT tenant FROM people WHERE person = ?1";
    let one = |person: &PersonNo| {
        let mut unreadable = 0;
        let found = match person_row::read_if_whole(conn, *person, &mut unreadable)? {
            Some(someone) => PersonRead::Someone(Box::new(someone)),
            None if unreadable == 0 => PersonRead::Gone,
            None => PersonRead::Unreadable(
                conn.prepare_cached(TENANT)?.query_row([person.0], |row| row.get(0).map(TenantNo))?,
            ),
        };
        Ok((*person, found))
    };
    people.iter().map(one).collect()
}

/// Has all tenants' people count these names of events; whether that changes anything.
fn count_events(columns: &mut Columns, names: BTreeMap<TenantNo, BTreeSet<String>>) -> bool {
    columns.event_names = names;
    let Columns { of_tenant, event_names, .. } = columns;
    let none = BTreeSet::new();
    let of = |(tenant, people): (&TenantNo, &mut AudienceIndex)| {
        people.count_events(event_names.get(tenant).unwrap_or(&none))
    };
    of_tenant.iter_mut().map(of).fold(false, |changed, one| changed | one)
}

/// Writes rows anew; whether there was no room for one.
fn put_person(columns: &mut Columns, read: &Read, now: Millis) -> bool {
    let mut full = false;
    for (person, found) in read {
        let number = crate::base::integers::unsigned(person.0);
        columns.unreadable.remove(person);
        let (someone, tenant) = match found {
            PersonRead::Someone(someone) => (Some(someone), Some(someone.tenant)),
            PersonRead::Gone => (None, None),
            PersonRead::Unreadable(tenant) => {
                columns.unreadable.insert(*person, *tenant);
                (None, None)
            }
        };
        // A number may have been another tenant's before.
        for (no, people) in &mut columns.of_tenant {
            if tenant != Some(*no) {
                people.remove(number);
            }
        }
        if let Some(someone) = someone {
            let Columns { of_tenant, event_names, .. } = &mut *columns;
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
