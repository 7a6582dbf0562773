//! Statements of the table `people`: one row per person, with the number of its visitors.

/// A page of people of all tenants with their tenants, in the order of rows. `?1` row before the page, `?2` maximum
/// rows.
pub(crate) const PEOPLE_PAGE_WITH_TENANTS: &str =
    "SELECT person, tenant FROM people WHERE person > ?1 ORDER BY person LIMIT ?2";

/// Number of people of each tenant.
pub(crate) const PEOPLE_COUNT_BY_TENANT: &str = "SELECT tenant, count(*) FROM people GROUP BY tenant";

/// A page of people of all tenants, in the order of rows. `?1` row before the page, `?2` maximum rows.
pub(crate) const PEOPLE_PAGE: &str = "SELECT person FROM people WHERE person > ?1 ORDER BY person LIMIT ?2";

/// Tenant of a person. `?1` person row.
pub(crate) const PEOPLE_TENANT_OF_PERSON: &str = "SELECT tenant FROM people WHERE person = ?1";

/// Tenant, master, number of visitors and random bytes of a person. `?1` person row.
pub(crate) const PEOPLE_TENANT_MASTER_AND_RANDOM: &str =
    "SELECT tenant, master, devices, random FROM people WHERE person = ?1";

/// Tenant and number of visitors of a person. `?1` person row.
pub(crate) const PEOPLE_TENANT_AND_DEVICES: &str = "SELECT tenant, devices FROM people WHERE person = ?1";

/// A page of the people that exist or have results of an experiment, in the order of rows. `?1` row before the page,
/// `?2` maximum rows. The page includes results of people that no longer exist.
pub(crate) const PEOPLE_PAGE_WITH_EXPERIMENT_PEOPLE: &str = "SELECT person FROM people WHERE person > ?1
    UNION SELECT person FROM experiment_people WHERE person > ?1 ORDER BY 1 LIMIT ?2";

/// Number of people of a tenant. `?1` tenant.
pub(crate) const PEOPLE_COUNT_OF_TENANT: &str = "SELECT count(*) FROM people WHERE tenant = ?1";

/// Visitor rows of a shard of a tenant's people, by person, the most recently active first. `?1` tenant, `?2` number of
/// shards, `?3` shard, `?4` first and `?5` last person row. Withdrawn visitors are left out, as in snapshots. The unary
/// plus makes SQLite read people in row order instead of by the index of tenants.
pub(crate) const PEOPLE_SHARD_WITH_VISITORS: &str =
    "SELECT p.person, v.row FROM people p JOIN visitors v ON v.person = p.person
    WHERE +p.tenant = ?1 AND p.person % ?2 = ?3 AND p.person BETWEEN ?4 AND ?5 AND v.withdrawn IS NULL
    ORDER BY p.person, v.last_seen DESC";

/// Highest row number of a person; 0 without people.
pub(crate) const PEOPLE_LAST_ROW: &str = "SELECT ifnull(max(person), 0) FROM people";

/// Masters of a tenant's people, with the number of visitors and whether the master is erased, in the order of masters.
/// `?1` tenant, `?2` master before the first row. The caller stops at its page's end.
pub(crate) const PEOPLE_OF_TENANT_FROM_MASTER: &str =
    "SELECT master, devices, EXISTS (SELECT 1 FROM erased e WHERE e.tenant = ?1 AND e.visitor = p.master)
    FROM people p WHERE tenant = ?1 AND master > ?2 ORDER BY master";

/// Master and number of visitors of a person. `?1` person row.
pub(crate) const PEOPLE_MASTER_AND_DEVICES: &str = "SELECT master, devices FROM people WHERE person = ?1";

/// Master, number of visitors and weight of a tenant's person. `?1` person row, `?2` tenant.
pub(crate) const PEOPLE_MASTER_DEVICES_AND_WEIGHT: &str =
    "SELECT master, devices, weight FROM people WHERE person = ?1 AND tenant = ?2";

/// Number of people of all tenants.
pub(crate) const PEOPLE_COUNT: &str = "SELECT count(*) FROM people";

/// Highest row number of a person, in people and in the results of experiments; 0 if the store has no exposure and no
/// result, because there is nothing to verify.
pub(crate) const PEOPLE_LAST_ROW_WITH_EXPERIMENT_PEOPLE: &str = "SELECT ifnull(max(person), 0)
    FROM (SELECT max(person) AS person FROM people UNION ALL SELECT max(person) FROM experiment_people)
    WHERE EXISTS (SELECT 1 FROM exposures) OR EXISTS (SELECT 1 FROM experiment_people)";

/// Epoch, number of visitors and master of a visitor's person, and the visitor's best send time. `?1` visitor row.
pub(crate) const PEOPLE_MEMBERSHIP_OF_VISITOR: &str =
    "SELECT p.epoch, p.devices, v.best, p.master FROM people p JOIN visitors v USING (person) WHERE v.row = ?1";

/// All people of all tenants, in the order of rows.
pub(crate) const PEOPLE_ALL: &str = "SELECT person, tenant, master, devices, weight FROM people ORDER BY person";

/// Number of a tenant's people with siblings due by a time. `?1` tenant, `?2` time.
pub(crate) const PEOPLE_COUNT_SIBLINGS_DUE_OF_TENANT: &str =
    "SELECT count(*) FROM people WHERE tenant = ?1 AND siblings_due <= ?2";

/// Whether siblings of a person or an open verification are due after a time. `?1` latest time for siblings, `?2` for
/// verifications.
pub(crate) const PEOPLE_OR_VERIFICATIONS_AHEAD: &str = "SELECT EXISTS (SELECT 1 FROM people WHERE siblings_due > ?1)
    OR EXISTS (SELECT 1 FROM verifications WHERE answered IS NULL AND due > ?2)";

/// Number of people with siblings due by a time plus number of sweeps, each counted up to a bound. `?1` time, `?2`
/// bound.
pub(crate) const PEOPLE_AND_SWEEPS_COUNT_PENDING: &str =
    "SELECT (SELECT count(*) FROM (SELECT 1 FROM people WHERE siblings_due <= ?1 LIMIT ?2))
    + (SELECT count(*) FROM (SELECT 1 FROM sweeps LIMIT ?2))";

/// Number of people with a due time of their siblings.
pub(crate) const PEOPLE_COUNT_SIBLINGS_DUE: &str = "SELECT count(*) FROM people WHERE siblings_due IS NOT NULL";

/// People with siblings due by a time, the earliest due time first. `?1` time, `?2` maximum rows.
pub(crate) const PEOPLE_SIBLINGS_DUE_BY_TIME: &str = "SELECT person, tenant FROM people WHERE siblings_due <= ?1
    ORDER BY siblings_due LIMIT ?2";

/// A row if a tenant has a person. `?1` person row, `?2` tenant.
pub(crate) const PEOPLE_HAS: &str = "SELECT 1 FROM people WHERE person = ?1 AND tenant = ?2";

/// Master, number of visitors and random bytes of a person. `?1` person row.
pub(crate) const PEOPLE_MASTER_DEVICES_AND_RANDOM: &str =
    "SELECT master, devices, random FROM people WHERE person = ?1";

/// Inserts a person with a chosen row and number of visitors.
pub(crate) const PEOPLE_INSERT: &str = "INSERT INTO people (person, tenant, master, devices, epoch, changed, random)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// Inserts a person of one visitor.
pub(crate) const PEOPLE_INSERT_OF_ONE: &str = "INSERT INTO people (tenant, master, devices, epoch, changed, random)
    VALUES (?1, ?2, 1, ?3, ?4, ?5)";

/// Writes the weight of a person's master into its person, if it differs. `?1` person row, `?2` tenant.
pub(crate) const PEOPLE_TAKE_WEIGHT_OF_MASTER: &str = "UPDATE people SET weight = v.weight FROM visitors v
    WHERE people.person = ?1 AND v.tenant = ?2 AND v.visitor = people.master AND people.weight <> v.weight";

/// Writes a person with new members. `?1` person row, `?7` row of the person that leaves its random bytes to it, if
/// that row exists.
pub(crate) const PEOPLE_UPDATE: &str = "UPDATE people SET tenant = ?2, master = ?3, devices = ?4, epoch = ?5,
    changed = ?6, random = coalesce((SELECT random FROM people WHERE person = ?7), random) WHERE person = ?1";

/// Writes a person after visitors left. `?1` person row, `?2` number of visitors, `?3` master, `?4` epoch, `?5` version
/// counter. The weight becomes that of the master.
pub(crate) const PEOPLE_SHRINK: &str = "UPDATE people SET devices = ?2, master = ?3, epoch = ?4, changed = ?5,
    weight = (SELECT weight FROM visitors v WHERE v.tenant = people.tenant AND v.visitor = ?3) WHERE person = ?1";

/// Moves all epochs onto another base. `?1` base, `?2` mask of the bits that an epoch keeps.
pub(crate) const PEOPLE_LIFT_EPOCHS: &str = "UPDATE people SET epoch = ?1 + (epoch & ?2)";

/// Moves the due times of siblings after a time to an earlier one. `?1` new due time, `?2` time.
pub(crate) const PEOPLE_CAP_SIBLINGS_DUE: &str = "UPDATE people SET siblings_due = ?1 WHERE siblings_due > ?2";

/// Marks a person of several visitors as changed, and sets the due time of its siblings if they have none. `?1` person
/// row, `?2` version counter, `?3` due time.
pub(crate) const PEOPLE_SCHEDULE_SIBLINGS: &str =
    "UPDATE people SET changed = ?2, siblings_due = ifnull(siblings_due, ?3)
    WHERE person = ?1 AND devices > 1";

/// Removes the due time of a person's siblings. `?1` person row.
pub(crate) const PEOPLE_CLEAR_SIBLINGS_DUE: &str = "UPDATE people SET siblings_due = NULL WHERE person = ?1";

/// Deletes a person without visitors. `?1` person row.
pub(crate) const PEOPLE_DELETE_IF_EMPTY: &str = "DELETE FROM people WHERE person = ?1
    AND NOT EXISTS (SELECT 1 FROM visitors WHERE person = ?1)";
