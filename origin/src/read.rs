//! What is read from the store: a visitor, its person, its lookups. Shared by the KV's values, the admin
//! side and `causeway inspect`.

use causeway_shared::bucket::PersonRandom;
use causeway_shared::ids::{AlternateId, KindCode, Millis, Version, VisitorId};
use causeway_shared::membership::Cut;
use causeway_shared::profile::{Profile, Totals};
use causeway_shared::wire::profile;
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::store::{PersonNo, StoreError, TenantNo, hash_at, unsigned, visitor_at};

/// One visitor's row.
#[derive(Debug, Clone, PartialEq)]
pub struct Visitor {
    /// The visitor.
    pub visitor: VisitorId,
    /// Its person.
    pub person: PersonNo,
    /// What its facts add up to.
    pub profile: Profile,
    /// The version of that.
    pub version: Version,
    /// Counter of the version its snapshot was handed out under last; 0: never.
    pub published: u64,
    /// When it withdrew its permission.
    pub withdrawn: Option<Millis>,
}

const COLUMNS: &str = "visitor, person, profile, restore, version, published, withdrawn";

fn raw(row: &Row<'_>) -> rusqlite::Result<(Visitor, Vec<u8>)> {
    let withdrawn: Option<i64> = row.get(6)?;
    let visitor = Visitor {
        visitor: visitor_at(row, 0)?,
        person: PersonNo(row.get(1)?),
        profile: Profile::default(),
        version: Version { restore: row.get(3)?, counter: unsigned(row.get(4)?) },
        published: unsigned(row.get(5)?),
        withdrawn: withdrawn.map(unsigned),
    };
    Ok((visitor, row.get(2)?))
}

fn whole((visitor, bytes): (Visitor, Vec<u8>)) -> Result<Visitor, StoreError> {
    Ok(Visitor { profile: profile::decode(&bytes)?, ..visitor })
}

/// A visitor; `None` if no fact of it ever came.
///
/// # Errors
/// [`StoreError`].
pub fn visitor(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<Option<Visitor>, StoreError> {
    let read = format!("SELECT {COLUMNS} FROM visitors WHERE tenant = ?1 AND visitor = ?2");
    let found = conn.prepare_cached(&read)?.query_row((tenant.0, visitor.as_bytes()), raw).optional()?;
    found.map(whole).transpose()
}

/// A person's visitors, the last active first, `most` at most.
///
/// # Errors
/// [`StoreError`].
pub fn members(conn: &Connection, person: PersonNo, most: usize) -> Result<Vec<Visitor>, StoreError> {
    let read = format!("SELECT {COLUMNS} FROM visitors WHERE person = ?1 ORDER BY last_seen DESC LIMIT ?2");
    let mut statement = conn.prepare_cached(&read)?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let rows: Vec<(Visitor, Vec<u8>)> = statement.query_map((person.0, most), raw)?.collect::<Result<_, _>>()?;
    rows.into_iter().map(whole).collect()
}

/// A person, with the sums over all its visitors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The oldest visitor.
    pub master: VisitorId,
    /// How many visitors it has.
    pub devices: u32,
    /// The first of them by age, up to the bound that was asked for.
    pub members: Vec<VisitorId>,
    /// The sums over all of them.
    pub view: Totals,
    /// What its buckets come from.
    pub random: PersonRandom,
}

/// A person; at most `most` of its members are named, all are summed up.
///
/// # Errors
/// [`StoreError`].
pub fn person(conn: &Connection, person: PersonNo, most: usize) -> Result<Option<Person>, StoreError> {
    const READ: &str = "SELECT master, devices, random FROM people WHERE person = ?1";
    const MEMBERS: &str = "SELECT visitor, profile FROM visitors WHERE person = ?1";
    let mut statement = conn.prepare_cached(READ)?;
    let row = statement.query_row([person.0], |row| Ok((visitor_at(row, 0)?, row.get(1)?, row.get(2)?))).optional()?;
    let Some((master, devices, random)) = row else {
        return Ok(None);
    };
    let random = PersonRandom(random);
    let mut found = Person { master, devices, members: Vec::new(), view: Totals::default(), random };
    let mut statement = conn.prepare_cached(MEMBERS)?;
    let mut rows = statement.query([person.0])?;
    while let Some(row) = rows.next()? {
        let bytes: Vec<u8> = row.get(1)?;
        found.view = found.view.plus(profile::decode(&bytes)?.totals());
        found.members.push(visitor_at(row, 0)?);
    }
    found.members.sort_unstable();
    found.members.truncate(most);
    Ok(Some(found))
}

/// A person's cuts. A visitor that has withdrawn is gone for everybody, whatever it was cut for.
///
/// # Errors
/// [`StoreError::Sqlite`].
pub fn cuts(conn: &Connection, person: PersonNo) -> Result<Vec<(VisitorId, Cut)>, StoreError> {
    const READ: &str = "SELECT c.visitor, c.at, v.withdrawn IS NOT NULL FROM cuts c
        JOIN people p ON p.person = c.person
        JOIN visitors v ON v.tenant = p.tenant AND v.visitor = c.visitor WHERE c.person = ?1";
    let mut statement = conn.prepare_cached(READ)?;
    let found = statement
        .query_map([person.0], |row| Ok((visitor_at(row, 0)?, Cut { at: unsigned(row.get(1)?), gone: row.get(2)? })))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// One lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The id, canonical.
    pub id: AlternateId,
    /// The visitors last seen with it, the newest first.
    pub visitors: Vec<VisitorId>,
    /// The receipt that put the first of them first.
    pub since: Millis,
}

/// The lookup of a canonical id; `None` for one that was never seen.
///
/// # Errors
/// [`StoreError`].
pub fn lookup(conn: &Connection, tenant: TenantNo, id: AlternateId) -> Result<Option<Lookup>, StoreError> {
    const READ: &str = "SELECT visitors, since FROM lookups WHERE tenant = ?1 AND kind = ?2 AND hash = ?3";
    let KindCode(kind) = id.kind;
    let found: Option<(Vec<u8>, i64)> = conn
        .prepare_cached(READ)?
        .query_row((tenant.0, kind, &id.hash.0), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((bytes, since)) = found else {
        return Ok(None);
    };
    let (chunks, _) = bytes.as_chunks::<16>();
    let visitors: Result<Vec<VisitorId>, _> = chunks.iter().map(|c| VisitorId::from_bytes(*c)).collect();
    let visitors = visitors.map_err(|_| StoreError::Corrupt { what: "lookup" })?;
    Ok(Some(Lookup { id, visitors, since: unsigned(since) }))
}

/// The ids whose lookup names this visitor first.
///
/// # Errors
/// [`StoreError`].
pub fn lookups_of(conn: &Connection, tenant: TenantNo, visitor: VisitorId) -> Result<Vec<AlternateId>, StoreError> {
    const READ: &str = "SELECT l.kind, l.hash FROM evidence e
        JOIN lookups l ON l.tenant = e.tenant AND l.kind = e.kind AND l.hash = e.hash
        WHERE e.tenant = ?1 AND e.visitor = ?2 AND substr(l.visitors, 1, 16) = ?2
        GROUP BY l.kind, l.hash ORDER BY l.kind, l.hash";
    let mut statement = conn.prepare_cached(READ)?;
    let rows = statement.query_map((tenant.0, visitor.as_bytes()), |row| {
        Ok(AlternateId { kind: KindCode(row.get(0)?), hash: hash_at(row, 1)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
