//! Sends that a restored store takes over from the store that it replaces, so that no person is delivered twice and
//! each position of a send belongs to the same person as before.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::campaigns::catalogue::TenantNumbers;
use crate::store::StoreError;
use crate::store::tables::{send_people, sends};

const SEND_COLUMNS: usize = 19;

/// A drawn person: position, visitor, arm, outcome, and time of the outcome.
type Drawn = (u32, [u8; 16], Option<u8>, Option<u8>, Option<i64>);

/// The sends of the replaced store and the people that they drew, by their numbers in that store.
#[derive(Debug, Clone, Default)]
pub struct ReplacedSends {
    sends: Vec<(i64, Vec<Value>)>,
    people: Vec<(i64, Drawn)>,
}

impl ReplacedSends {
    /// Reads the sends. A store of an earlier release has none.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn of(conn: &Connection) -> Result<Self, StoreError> {
        if !conn.table_exists(None, "sends")? {
            return Ok(Self::default());
        }
        let mut sends = conn.prepare(sends::SENDS_ALL_COLUMNS)?;
        let sends = sends.query_map([], |row| {
            let values = (0..SEND_COLUMNS).map(|column| row.get(column)).collect::<Result<_, _>>()?;
            Ok((row.get(SEND_COLUMNS)?, values))
        })?;
        let mut people = conn.prepare(send_people::SEND_PEOPLE_ALL)?;
        let people = people.query_map([], |row| {
            Ok((row.get(0)?, (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?)))
        })?;
        Ok(Self { sends: sends.collect::<Result<_, _>>()?, people: people.collect::<Result<_, _>>()? })
    }

    /// Replaces the restored store's sends with the newer ones. A send that the replaced store does not have is
    /// stopped, because its deliveries since the backup are unknown; an operator can start it again.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn bring(&self, conn: &Connection, numbers: &TenantNumbers) -> Result<(), StoreError> {
        conn.execute(sends::SENDS_STOP_ALL, [])?;
        let mut here = BTreeMap::new();
        for (send, row) in &self.sends {
            let mut row = row.clone();
            let [Value::Integer(tenant), name, ..] = row.as_mut_slice() else { continue };
            *tenant = numbers.of(*tenant);
            conn.prepare_cached(send_people::SEND_PEOPLE_DELETE_OF_NAMED_SEND)?.execute((*tenant, &*name))?;
            conn.prepare_cached(sends::SENDS_DELETE_BY_NAME)?.execute((*tenant, &*name))?;
            conn.prepare_cached(sends::SENDS_INSERT_ALL_COLUMNS)?.execute(params_from_iter(&row))?;
            here.insert(*send, conn.last_insert_rowid());
        }
        let mut put = conn.prepare_cached(send_people::SEND_PEOPLE_INSERT)?;
        for (send, (place, visitor, arm, outcome, at)) in &self.people {
            if let Some(send) = here.get(send) {
                put.execute((send, place, visitor, arm, outcome, at))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::maintenance::backup;
    use crate::store;
    use crate::testing::{NOW, Origin};

    fn send(conn: &Connection, tenant: i64, name: &str, random: i64, next: i64, due: Option<i64>) -> i64 {
        const PUT: &str =
            "INSERT INTO sends (tenant, name, filter, count, webhook, per_second, random, requested, chosen, next,
            delivered, due) VALUES (?1, ?2, '{}', 3, 0, 0, ?3, 1, 3, ?4, ?4, ?5)";
        conn.execute(PUT, (tenant, name, random, next, due)).unwrap();
        let send = conn.last_insert_rowid();
        for place in 0..3_u8 {
            let outcome = (i64::from(place) < next).then_some(1);
            let person = [u8::try_from(random).unwrap() + place; 16];
            conn.execute("INSERT INTO send_people VALUES (?1, ?2, ?3, NULL, ?4, NULL)", (send, place, person, outcome))
                .unwrap();
        }
        send
    }

    /// Name, random bits, next position, whether the send continues by itself, and the first byte of each drawn
    /// visitor.
    fn all(conn: &Connection) -> Vec<(String, i64, i64, bool, Vec<u8>)> {
        let mut read = conn.prepare("SELECT name, random, next, due, send FROM sends ORDER BY name").unwrap();
        let people = |send: i64| {
            let mut read = conn.prepare("SELECT visitor FROM send_people WHERE send = ?1 ORDER BY place").unwrap();
            let rows = read.query_map([send], |row| row.get::<_, [u8; 16]>(0)).unwrap();
            rows.map(|row| row.unwrap()[0]).collect()
        };
        let row = |row: &rusqlite::Row<'_>| {
            let due: Option<i64> = row.get(3)?;
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, due.is_some(), people(row.get(4)?)))
        };
        read.query_map([], row).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn deliveries_since_the_backup_stay_recorded_and_unknown_sends_wait() {
        let (before, mut restored) = (Origin::new(), Origin::new());
        let known = before.tenant("demo").no.0;
        send(&before.conn, known, "june", 40, 2, Some(5));
        send(&before.conn, known, "may", 50, 3, None);
        send(&restored.conn, known, "april", 10, 1, Some(5));
        send(&restored.conn, known, "may", 60, 0, Some(5));
        let of = backup::ReplacedStore::of_conn(&before.conn).unwrap();
        backup::renew_store(&mut restored.conn, &of, NOW).unwrap();
        let found = all(&restored.conn);
        let row = |name: &str, random: i64, next, goes_on, first: u8| {
            (name.to_owned(), random, next, goes_on, vec![first, first + 1, first + 2])
        };
        assert_eq!(found, [row("april", 10, 1, false, 10), row("june", 40, 2, true, 40), row("may", 50, 3, false, 50)]);
    }

    #[test]
    fn the_store_of_another_origin_gives_its_rows_to_the_tenants_with_the_same_names() {
        let (fresh, mut restored) = (Origin::new(), Origin::new());
        let tenants = |conn: &Connection, names: [&str; 2]| {
            conn.execute_batch("DELETE FROM tenants").unwrap();
            names.map(|name| store::tenant_no(conn, name).unwrap().0)
        };
        let [b, new] = tenants(&fresh.conn, ["b", "new"]);
        let [a, own_b] = tenants(&restored.conn, ["a", "b"]);
        assert_eq!((b, new), (a, own_b), "the numbers are mixed");
        for conn in [&fresh.conn, &restored.conn] {
            conn.execute_batch("DELETE FROM tokens").unwrap();
        }
        let token =
            "INSERT INTO tokens (token, hash, role, name, created, revoked) VALUES (1, ?1, 'viewer', 't', 1, ?2)";
        fresh.conn.execute(token, ([1_u8; 32], Some(9))).unwrap();
        restored.conn.execute(token, ([2_u8; 32], None::<i64>)).unwrap();
        let spent = "INSERT INTO spend (tenant, campaign, day, nanos) VALUES (?1, 1, -1, ?2)";
        fresh.conn.execute(spent, (b, 70)).unwrap();
        fresh.conn.execute(spent, (new, 80)).unwrap();
        restored.conn.execute(spent, (a, 10)).unwrap();
        let name = "INSERT INTO attribute_names (tenant, token, name, kind) VALUES (?1, 0, ?2, 1)";
        fresh.conn.execute(name, (b, "of_b")).unwrap();
        restored.conn.execute(name, (a, "of_a")).unwrap();
        send(&fresh.conn, b, "may", 50, 3, None);
        let of = backup::ReplacedStore::of_conn(&fresh.conn).unwrap();
        backup::renew_store(&mut restored.conn, &of, NOW).unwrap();
        let list = |sql: &str| {
            let mut read = restored.conn.prepare(sql).unwrap();
            let rows = read.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).unwrap();
            rows.map(Result::unwrap).map(|(of, what)| format!("{of} {what}")).collect::<Vec<_>>()
        };
        let of = |table: &str, what: &str| {
            list(&format!(
                "SELECT t.name, cast(x.{what} AS TEXT) FROM {table} x JOIN tenants t USING (tenant) ORDER BY 1"
            ))
        };
        assert_eq!(of("spend", "nanos"), ["a 10", "b 70", "new 80"]);
        assert_eq!(of("attribute_names", "name"), ["a of_a", "b of_b"]);
        assert_eq!(of("sends", "name"), ["b may"]);
        let revoked = "SELECT 'token', ifnull(cast(revoked AS TEXT), 'no') FROM tokens WHERE hash = x'0202020202020202020202020202020202020202020202020202020202020202'";
        assert_eq!(list(revoked), ["token no"], "another token of that number was");
    }
}
