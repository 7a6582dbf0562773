//! Keeps the columns as the store is: builds them, and then writes the rows anew of whoever changed.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use causeway_shared::columns::People;
use causeway_shared::ids::Millis;
use causeway_shared::time::HourStamp;
use rusqlite::Connection;

use super::{Audience, Columns};
use crate::audience::person::{self, Someone};
use crate::clock;
use crate::store::{self, PersonNo, StoreError, TenantNo};

/// How long it waits when nothing changed.
const LOOK: Duration = Duration::from_millis(100);
/// People read in one transaction, so that none holds the store's log back.
const SOME: u32 = 1_000;

/// Follows one store.
#[derive(Debug)]
pub struct Follower {
    conn: Connection,
    audience: Audience,
    /// The newest change that is in the columns.
    seq: i64,
    /// The last person that was read, while the columns are being built.
    building: Option<i64>,
    /// Up to which hour expired segments were looked for.
    hour: HourStamp,
}

impl Follower {
    /// Follows the store in `data`, from nothing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn new(data: &Path, audience: Audience, now: Millis) -> Result<Self, StoreError> {
        let mut follower =
            Self { conn: store::open_readonly(data)?, audience, seq: 0, building: None, hour: HourStamp(0) };
        follower.begin(now)?;
        Ok(follower)
    }

    /// Begins anew: all people are read, and what changes meanwhile after them.
    fn begin(&mut self, now: Millis) -> Result<(), StoreError> {
        let tx = self.conn.transaction()?;
        self.seq = newest(&tx)?;
        let mut columns = Columns { building: (0, 0), ..Columns::default() };
        let mut statement = tx.prepare("SELECT tenant, count(*) FROM people GROUP BY tenant")?;
        for row in statement.query_map([], |row| Ok((TenantNo(row.get(0)?), row.get::<_, u32>(1)?)))? {
            let (tenant, people) = row?;
            columns.building.1 += u64::from(people);
            columns.of_tenant.insert(tenant, People::laid_out_for(people.into()));
        }
        *self.audience.write() = columns;
        (self.building, self.hour) = (Some(i64::MIN), HourStamp::at(now));
        Ok(())
    }

    /// One step; whether another is to follow at once.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn step(&mut self, now: Millis) -> Result<bool, StoreError> {
        if let Some(after) = self.building {
            return self.build(after, now);
        }
        let hour = HourStamp::at(now);
        if hour > self.hour {
            self.expire(hour)?;
        }
        self.catch_up(now)
    }

    fn build(&mut self, after: i64, now: Millis) -> Result<bool, StoreError> {
        const READ: &str = "SELECT person FROM people WHERE person > ?1 ORDER BY person LIMIT ?2";
        let tx = self.conn.transaction()?;
        let mut statement = tx.prepare_cached(READ)?;
        let people: Vec<PersonNo> =
            statement.query_map((after, SOME), |row| row.get(0).map(PersonNo))?.collect::<Result<_, _>>()?;
        let read = read(&tx, &people)?;
        drop(statement);
        tx.commit()?;
        let full = put(&mut self.audience.write(), &read, now);
        self.building = people.last().map(|last| last.0);
        self.audience.write().building.0 += people.len() as u64;
        if full { self.begin(now).map(|()| true) } else { Ok(true) }
    }

    /// Segments that are over by this hour are taken out of the rows.
    fn expire(&mut self, hour: HourStamp) -> Result<(), StoreError> {
        let expired: Vec<PersonNo> = {
            let columns = self.audience.read();
            let people = columns.of_tenant.values().flat_map(|people| people.expired(hour));
            people.map(|person| PersonNo(store::signed(person))).collect()
        };
        for some in expired.chunks(SOME as usize) {
            let tx = self.conn.transaction()?;
            let read = read(&tx, some)?;
            tx.commit()?;
            put(&mut self.audience.write(), &read, hour.start_ms());
        }
        self.hour = hour;
        Ok(())
    }

    fn catch_up(&mut self, now: Millis) -> Result<bool, StoreError> {
        const READ: &str = "SELECT seq, person FROM people_changed WHERE seq > ?1 ORDER BY seq LIMIT ?2";
        const OLDEST: &str = "SELECT ifnull(min(seq), 0) FROM people_changed";
        let tx = self.conn.transaction()?;
        let mut statement = tx.prepare_cached(READ)?;
        let rows: Vec<(i64, i64)> =
            statement.query_map((self.seq, SOME), |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
        drop(statement);
        // Somebody forgot changes that were not followed yet, or the store is another one.
        let is_behind = tx.query_row(OLDEST, [], |row| row.get::<_, i64>(0))? > self.seq + 1 || newest(&tx)? < self.seq;
        let people: BTreeSet<PersonNo> = rows.iter().map(|(_, person)| PersonNo(*person)).collect();
        let people: Vec<PersonNo> = people.into_iter().collect();
        let read = read(&tx, &people)?;
        tx.commit()?;
        if is_behind {
            tracing::warn!("the columns of audiences are too far behind the store: they are built anew");
            return self.begin(now).map(|()| true);
        }
        let is_last = rows.len() < SOME as usize;
        let mut columns = self.audience.write();
        let full = put(&mut columns, &read, now);
        self.seq = rows.last().map_or(self.seq, |(seq, _)| *seq);
        if is_last {
            columns.as_of = Some(now);
        }
        drop(columns);
        if full { self.begin(now).map(|()| true) } else { Ok(!is_last) }
    }

    /// Follows until it is told to end.
    fn live(mut self) {
        while !self.audience.is_stopping() {
            let more = self.step(clock::now()).unwrap_or_else(|e| {
                tracing::error!(error = %crate::chain(&e), "the columns of audiences cannot follow the store");
                false
            });
            if !more {
                std::thread::park_timeout(LOOK);
            }
        }
    }
}

/// Starts a thread that follows the store in `data`, until the columns are told to stop.
///
/// # Errors
/// [`StoreError`], or when the operating system gives no thread.
pub fn start(data: &Path, audience: Audience) -> Result<JoinHandle<()>, StoreError> {
    let follower = Follower::new(data, audience, clock::now())?;
    let spawned = std::thread::Builder::new().name("audience".to_owned()).spawn(move || follower.live());
    spawned.map_err(|source| StoreError::Directory { path: data.to_owned(), source })
}

fn newest(conn: &Connection) -> Result<i64, StoreError> {
    // Also when all changes were forgotten: numbers go on.
    const NEWEST: &str = "SELECT ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'people_changed'), 0)";
    Ok(conn.prepare_cached(NEWEST)?.query_row([], |row| row.get(0))?)
}

type Read = Vec<(PersonNo, Option<Someone>)>;

fn read(conn: &Connection, people: &[PersonNo]) -> Result<Read, StoreError> {
    people.iter().map(|person| Ok((*person, person::read(conn, *person)?))).collect()
}

/// Writes rows anew; whether there was no room for one.
fn put(columns: &mut Columns, read: &Read, now: Millis) -> bool {
    let mut full = false;
    for (person, someone) in read {
        let number = store::unsigned(person.0);
        let tenant = someone.as_ref().map(|someone| someone.tenant);
        // A number may have been another tenant's before.
        for (no, people) in &mut columns.of_tenant {
            if tenant != Some(*no) {
                people.remove(number);
            }
        }
        if let Some(someone) = someone {
            let people = columns.of_tenant.entry(someone.tenant).or_insert_with(|| People::laid_out_for(0));
            full |= someone.row(now, |row| people.put(row)).is_err();
        }
    }
    full
}
