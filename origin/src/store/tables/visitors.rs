//! Statements of the table `visitors`: one row per browser. `row` is its number, `visitor` its id.

/// Columns of a visitor's view, in the order in which `views::read` reads them.
macro_rules! view_columns {
    () => {
        "row, visitor, tenant, person, profile, restore, version, published, withdrawn, weight"
    };
}

/// View of a visitor. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_VIEW_OF_ID: &str =
    concat!("SELECT ", view_columns!(), " FROM visitors WHERE tenant = ?1 AND visitor = ?2");

/// Views of a person's visitors, the most recently active first, at most `most`. `?1` person row. As a bound parameter,
/// the limit would make SQLite plan the statement again on each call.
pub(crate) fn visitors_views_of_person(most: usize) -> String {
    format!(
        concat!("SELECT ", view_columns!(), " FROM visitors WHERE person = ?1 ORDER BY last_seen DESC LIMIT {}"),
        most
    )
}

/// Content of a person's visitors with permission, the most recently active first, at most `most`. `?1` person row. As
/// a bound parameter, the limit would make SQLite plan the statement again on each call.
pub(crate) fn visitors_content_of_person(most: u32) -> String {
    format!(
        "SELECT row, profile, segments, attributes, actions, events, last_seen, visitor FROM visitors
        WHERE person = ?1 AND withdrawn IS NULL ORDER BY last_seen DESC LIMIT {most}"
    )
}

/// Ids of the visitors of a person, at most `most` and one more, which shows that the person has more. `?1` person row,
/// `?2` tenant. The other indices would read all visitors of the tenant.
pub(crate) fn visitors_of_person_beyond(most: u32) -> String {
    format!(
        "SELECT visitor FROM visitors INDEXED BY visitors_by_person WHERE person = ?1 AND tenant = ?2 LIMIT {most} + 1"
    )
}

/// Ids of the most recently active visitors of a person, at most `most`. `?1` person row. As a bound parameter, the
/// limit would make SQLite plan the statement again on each call.
pub(crate) fn visitors_newest_of_person(most: usize) -> String {
    format!("SELECT visitor FROM visitors WHERE person = ?1 ORDER BY last_seen DESC LIMIT {most}")
}

/// Ids of the most recently active visitors of a person, at most `most`, with snapshots older than the person's last
/// change. `?1` person row. As a bound parameter, the limit would make SQLite plan the statement again on each call.
pub(crate) fn visitors_outdated_of_person(most: usize) -> String {
    format!(
        "SELECT v.visitor FROM
            (SELECT visitor, published FROM visitors WHERE person = ?1 ORDER BY last_seen DESC LIMIT {most}) v
        WHERE v.published < (SELECT changed FROM people WHERE person = ?1)"
    )
}

/// Tenant, 0 as the kind, and id of all visitors of all tenants.
pub(crate) const VISITORS_KEYS: &str = "SELECT tenant, 0, visitor FROM visitors";

/// Number of KV keys of visitors and ids: rows of visitors, lookups, alternate hashes and erased ids.
pub(crate) const VISITORS_COUNT_KV_KEYS: &str =
    "SELECT (SELECT count(*) FROM visitors) + (SELECT count(*) FROM lookups)
    + (SELECT count(*) FROM alternates) + (SELECT count(*) FROM erased_ids)";

/// Number of visitors, number of people, newest receipt of a fact, and newest folded log record.
pub(crate) const VISITORS_AND_PEOPLE_SUMMARY: &str =
    "SELECT (SELECT count(*) FROM visitors), (SELECT count(*) FROM people),
    (SELECT ifnull(max(last_seen), 0) FROM visitors), (SELECT folded FROM meta)";

/// Person of a visitor. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_PERSON_OF_ID: &str = "SELECT person FROM visitors WHERE tenant = ?1 AND visitor = ?2";

/// Profile and attributes of a person's visitors with permission, the most recently active first. `?1` person row. The
/// limit is that of the person's row in the audience index. As a bound parameter, it would make SQLite plan the
/// statement again on each call.
pub(crate) const VISITORS_ACTIVITY_OF_PERSON: &str =
    "SELECT profile, attributes, visitor FROM visitors WHERE person = ?1 AND withdrawn IS NULL
    ORDER BY last_seen DESC LIMIT 1000";

/// Row, person and best send time of a visitor. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_BEST_OF_ID: &str =
    "SELECT row, person, best FROM visitors WHERE tenant = ?1 AND visitor = ?2";

/// Master of a visitor's person. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_MASTER_OF_ID: &str = "SELECT p.master FROM visitors v JOIN people p ON p.person = v.person
    WHERE v.tenant = ?1 AND v.visitor = ?2";

/// Person of a visitor that is its person's master. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_PERSON_OF_MASTER: &str = "SELECT p.person FROM visitors v JOIN people p USING (person)
    WHERE v.tenant = ?1 AND v.visitor = ?2 AND p.master = ?2";

/// Exposures of a person's visitors with permission. `?1` person row.
pub(crate) const VISITORS_EXPOSURES_OF_PERSON: &str = "SELECT e.experiment, e.arm, e.at, e.mixed FROM visitors v
    JOIN exposures e ON e.visitor = v.row WHERE v.person = ?1 AND v.withdrawn IS NULL";

/// Person of a visitor. `?1` visitor row.
pub(crate) const VISITORS_PERSON_OF_ROW: &str = "SELECT person FROM visitors WHERE row = ?1";

/// Conversions of a person's visitors with permission, in the order of receipt. `?1` person row.
pub(crate) const VISITORS_CONVERSIONS_OF_PERSON: &str =
    "SELECT c.received, c.name, c.value, c.id FROM visitors v JOIN conversions c ON c.visitor = v.row
    WHERE v.person = ?1 AND v.withdrawn IS NULL ORDER BY c.received, c.id, c.value";

/// Offer codes of a person's visitors with permission. `?1` person row.
pub(crate) const VISITORS_OFFER_CODES_OF_PERSON: &str = "SELECT u.campaign, u.number, u.at FROM visitors v
    JOIN offer_codes u ON u.visitor = v.row WHERE v.person = ?1 AND v.withdrawn IS NULL";

/// Rows of the visitors of a visitor's person, the most recently active first. `?1` visitor row, `?2` maximum rows.
pub(crate) const VISITORS_ROWS_OF_SAME_PERSON: &str =
    "SELECT row FROM visitors WHERE person = (SELECT person FROM visitors WHERE row = ?1)
    ORDER BY last_seen DESC LIMIT ?2";

/// Id and segments of a visitor. `?1` visitor row.
pub(crate) const VISITORS_ID_AND_SEGMENTS: &str = "SELECT visitor, segments FROM visitors WHERE row = ?1";

/// Highest row number of a visitor; 0 without visitors.
pub(crate) const VISITORS_LAST_ROW: &str = "SELECT ifnull(max(row), 0) FROM visitors";

/// Tenant, segments and number of actions of the first visitor from a row on. `?1` row.
pub(crate) const VISITORS_SAMPLE_FROM_ROW: &str =
    "SELECT tenant, segments, actions FROM visitors WHERE row >= ?1 ORDER BY row LIMIT 1";

/// Receipts of the erasures that sweep a visitor's person. `?1` tenant, `?2` visitor. The cross join reads the visitor
/// first.
pub(crate) const VISITORS_SWEEPS_OF_ID: &str =
    "SELECT s.receipt FROM visitors v CROSS JOIN erasure_sweeps s ON s.person = v.person
    WHERE v.tenant = ?1 AND v.visitor = ?2 AND s.tenant = ?1";

/// A page of a person's visitors, the most recently active first. `?1` person row, `?2` last receipt and `?3` row
/// before the page, `?4` maximum rows. The statement reads in index order, so that a step costs the same for a million
/// visitors as for three.
pub(crate) const VISITORS_PAGE_OF_PERSON_DOWNWARD: &str =
    "SELECT tenant, visitor, published, last_seen, row FROM visitors
    WHERE person = ?1 AND last_seen <= ?2 AND (last_seen < ?2 OR row > ?3) ORDER BY last_seen DESC, row LIMIT ?4";

/// Whether a visitor withdrew its permission. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_IS_WITHDRAWN: &str =
    "SELECT withdrawn IS NOT NULL FROM visitors WHERE tenant = ?1 AND visitor = ?2";

/// Person and weight of two visitors; the first row has the person's master and weight. `?1` tenant, `?2` first and
/// `?3` second visitor. The second part has no master and runs only if its row is requested. The index holds all
/// columns that are read.
pub(crate) const VISITORS_PAIR_WITH_PERSON: &str =
    "SELECT v.person, v.weight, p.master, p.weight FROM visitors v INDEXED BY visitors_by_id JOIN people p USING (person)
        WHERE v.tenant = ?1 AND v.visitor = ?2
    UNION ALL
    SELECT person, weight, NULL, NULL FROM visitors INDEXED BY visitors_by_id WHERE tenant = ?1 AND visitor = ?3";

/// A page of a person's visitors, the least recently active first. `?1` person row, `?2` last receipt and `?3` row
/// before the page, `?4` maximum rows. The statement reads in index order, so that a page costs the same for a million
/// visitors as for three.
pub(crate) const VISITORS_PAGE_OF_PERSON_UPWARD: &str = "SELECT visitor, last_seen FROM visitors
    WHERE person = ?1 AND last_seen >= ?2 AND (last_seen > ?2 OR row < ?3) ORDER BY last_seen, row DESC LIMIT ?4";

/// Person, newest receipt and row of a visitor. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_POSITION_OF_ID: &str =
    "SELECT person, last_seen, row FROM visitors WHERE tenant = ?1 AND visitor = ?2";

/// Number of visitors that point to a person. `?1` person row, `?2` tenant. The other indices would read all visitors
/// of the tenant.
pub(crate) const VISITORS_COUNT_OF_PERSON: &str =
    "SELECT count(*) FROM visitors INDEXED BY visitors_by_person WHERE person = ?1 AND tenant = ?2";

/// Person, newest receipt and weight of a visitor. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_LINK_OF_ID: &str =
    "SELECT person, last_seen, weight FROM visitors WHERE tenant = ?1 AND visitor = ?2";

/// Visitors of a person in the order of ids. `?1` tenant, `?2` id before the first row, `?3` person row. The statement
/// reads and sorts the person's visitors.
pub(crate) const VISITORS_OF_SMALL_PERSON_BY_ID: &str = "SELECT visitor FROM visitors INDEXED BY visitors_by_person
    WHERE person = ?3 AND tenant = ?1 AND visitor > ?2 ORDER BY visitor";

/// Visitors of a person in the order of ids. `?1` tenant, `?2` id before the first row, `?3` person row. The statement
/// reads all visitors of the tenant in the order of ids, which finds the oldest of many quickly.
pub(crate) const VISITORS_OF_LARGE_PERSON_BY_ID: &str = "SELECT visitor FROM visitors INDEXED BY visitors_by_id
    WHERE tenant = ?1 AND visitor > ?2 AND person = ?3 ORDER BY visitor";

/// Number of visitors of all tenants.
pub(crate) const VISITORS_COUNT: &str = "SELECT count(*) FROM visitors";

/// A row if a send delivered to a visitor of a person or put it in the control group. `?1` send, `?2` person row. The
/// index finds the sends of one visitor. A person with another outcome does not count, so that its other visitor may be
/// delivered.
pub(crate) const VISITORS_OF_PERSON_WITH_OUTCOME: &str = "SELECT 1 FROM visitors v
    CROSS JOIN send_people s INDEXED BY send_people_visitor ON s.visitor = v.visitor AND s.send = ?1
    WHERE v.person = ?2 AND s.outcome IN (1, 2) LIMIT 1";

/// Person of a visitor that did not withdraw its permission. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_PERSON_OF_ID_WITH_PERMISSION: &str =
    "SELECT person FROM visitors WHERE tenant = ?1 AND visitor = ?2 AND withdrawn IS NULL";

/// A page of visitors of all tenants with their newest receipts, in the order of rows. `?1` row before the page, `?2`
/// maximum rows.
pub(crate) const VISITORS_PAGE_WITH_LAST_SEEN: &str =
    "SELECT row, tenant, visitor, last_seen FROM visitors WHERE row > ?1 ORDER BY row LIMIT ?2";

/// Newest receipt of a visitor. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_LAST_SEEN_OF_ID: &str = "SELECT last_seen FROM visitors WHERE tenant = ?1 AND visitor = ?2";

/// A page of visitors of all tenants with their ids, in the order of rows. `?1` row before the page, `?2` maximum rows.
pub(crate) const VISITORS_PAGE_WITH_IDS: &str =
    "SELECT row, tenant, visitor FROM visitors WHERE row > ?1 ORDER BY row LIMIT ?2";

/// Published version and permission of a visitor, its person, the person's last change, and whether siblings or a sweep
/// wait. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_PUBLISHED_STATE: &str =
    "SELECT v.published, v.withdrawn IS NOT NULL, v.person, ifnull(p.changed, 0),
        p.siblings_due IS NOT NULL OR EXISTS (SELECT 1 FROM sweeps s WHERE s.person = v.person)
    FROM visitors v LEFT JOIN people p USING (person) WHERE v.tenant = ?1 AND v.visitor = ?2";

/// Newest version among a person's most recently active visitors; 0 without visitors. `?1` person row, `?2` maximum
/// visitors.
pub(crate) const VISITORS_NEWEST_VERSION_OF_PERSON: &str = "SELECT ifnull(max(version), 0) FROM
    (SELECT version FROM visitors WHERE person = ?1 ORDER BY last_seen DESC LIMIT ?2)";

/// Row of a visitor. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_ROW_OF_ID: &str = "SELECT row FROM visitors WHERE tenant = ?1 AND visitor = ?2";

/// Packed columns of a tenant's visitors, in the order of ids. `?1` tenant.
pub(crate) const VISITORS_PACKED_OF_TENANT: &str =
    "SELECT row, visitor, segments, attributes, events, last_seen FROM visitors
    WHERE tenant = ?1 ORDER BY visitor";

/// Number of actions of a visitor. `?1` visitor row.
pub(crate) const VISITORS_ACTIONS_OF_ROW: &str = "SELECT actions FROM visitors WHERE row = ?1";

/// Row, attributes and permission of a visitor, its person, and the person's number of visitors. `?1` tenant, `?2`
/// visitor.
pub(crate) const VISITORS_ATTRIBUTES_WITH_PERSON: &str =
    "SELECT v.row, v.attributes, v.person, p.devices, v.withdrawn IS NOT NULL FROM visitors v
    JOIN people p ON p.person = v.person WHERE v.tenant = ?1 AND v.visitor = ?2";

/// Person and weight of all visitors of all tenants, in the order of tenant and id. The index holds all columns that
/// are read.
pub(crate) const VISITORS_ALL_BY_ID: &str =
    "SELECT tenant, visitor, person, weight FROM visitors INDEXED BY visitors_by_id ORDER BY tenant, visitor";

/// A page of a tenant's visitors that have attributes, in the order of rows. `?1` row before the page, `?2` tenant,
/// `?3` maximum rows.
pub(crate) const VISITORS_PAGE_WITH_ATTRIBUTES: &str = "SELECT row, visitor, attributes FROM visitors
    WHERE row > ?1 AND tenant = ?2 AND length(attributes) > 0 ORDER BY row LIMIT ?3";

/// A page of visitor rows of all tenants, in their order. `?1` row before the page, `?2` maximum rows. The statement
/// reads the table itself, so that a damaged index hides no row.
pub(crate) const VISITORS_PAGE_NOT_INDEXED: &str =
    "SELECT row FROM visitors NOT INDEXED WHERE row > ?1 ORDER BY row LIMIT ?2";

/// A page of visitor rows of all tenants, in their order. `?1` row before the page, `?2` maximum rows.
pub(crate) const VISITORS_PAGE: &str = "SELECT row FROM visitors WHERE row > ?1 ORDER BY row LIMIT ?2";

/// Segments and number of actions of a visitor. `?1` visitor row.
pub(crate) const VISITORS_SEGMENTS_AND_ACTIONS: &str = "SELECT segments, actions FROM visitors WHERE row = ?1";

/// Segments of the other visitors of a visitor's person. `?1` visitor row, `?2` maximum rows.
pub(crate) const VISITORS_SEGMENTS_OF_SIBLINGS: &str = "SELECT segments FROM visitors
    WHERE person = (SELECT person FROM visitors WHERE row = ?1) AND row <> ?1 LIMIT ?2";

/// Visitors of a tenant with a truncated snapshot. `?1` tenant. The index holds truncated visitors only.
pub(crate) const VISITORS_TRUNCATED_OF_TENANT: &str =
    "SELECT visitor FROM visitors INDEXED BY visitors_truncated WHERE tenant = ?1 AND truncated";

/// Ids of the visitors of a visitor's person. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_OF_SAME_PERSON: &str = "SELECT visitor FROM visitors
    WHERE person = (SELECT person FROM visitors WHERE tenant = ?1 AND visitor = ?2)";

/// Columns of a visitor that have checksums or index entries. `?1` visitor row. The statement reads the table itself,
/// so that the indices can be compared with it.
pub(crate) const VISITORS_CHECKED_COLUMNS: &str =
    "SELECT tenant, visitor, person, last_seen, profile, segments, attributes, events
    FROM visitors NOT INDEXED WHERE row = ?1";

/// A row if the index of ids has a visitor's entry. `?1` tenant, `?2` visitor, `?3` person row, `?4` visitor row.
pub(crate) const VISITORS_ENTRY_BY_ID: &str = "SELECT 1 FROM visitors INDEXED BY visitors_by_id
    WHERE tenant = ?1 AND visitor = ?2 AND person = ?3 AND row = ?4";

/// A row if the index of people has a visitor's entry. `?1` person row, `?2` newest receipt, `?3` visitor row.
pub(crate) const VISITORS_ENTRY_BY_PERSON: &str = "SELECT 1 FROM visitors INDEXED BY visitors_by_person
    WHERE person = ?1 AND last_seen = ?2 AND row = ?3";

/// A row if a visitor is erased. `?1` visitor row. The cross join reads the visitor first.
pub(crate) const VISITORS_IS_ERASED: &str =
    "SELECT 1 FROM visitors v CROSS JOIN erased e USING (tenant, visitor) WHERE v.row = ?1";

/// Columns of a visitor that new facts extend, and the number of visitors of its person. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_FOLDED_STATE: &str =
    "SELECT v.row, v.profile, v.last_seen, v.actions, v.withdrawn IS NOT NULL, v.person, p.devices, v.events
    FROM visitors v JOIN people p ON p.person = v.person WHERE v.tenant = ?1 AND v.visitor = ?2";

/// Events and newest receipt of a visitor. `?1` visitor row.
pub(crate) const VISITORS_EVENTS_OF_ROW: &str = "SELECT events, last_seen FROM visitors WHERE row = ?1";

/// Segments of a visitor. `?1` visitor row.
pub(crate) const VISITORS_SEGMENTS_OF_ROW: &str = "SELECT segments FROM visitors WHERE row = ?1";

/// Attributes of a visitor. `?1` visitor row.
pub(crate) const VISITORS_ATTRIBUTES_OF_ROW: &str = "SELECT attributes FROM visitors WHERE row = ?1";

/// Unpaid purchases of a person's most recently active visitors. `?1` person row, `?2` maximum visitors, `?3` current
/// time.
pub(crate) const VISITORS_UNPAID_PURCHASES_OF_PERSON: &str =
    "SELECT visitor, id, minute, received, value, order_hash, tenant FROM
    (SELECT tenant, row FROM visitors WHERE person = ?1 ORDER BY last_seen DESC LIMIT ?2) v
    CROSS JOIN purchases_unpaid ON visitor = v.row WHERE until > ?3";

/// A row if facts of a visitor wait. `?1` tenant, `?2` visitor. The cross join reads the visitor first.
pub(crate) const VISITORS_HAS_QUARANTINED: &str =
    "SELECT 1 FROM visitors v CROSS JOIN quarantined_facts a ON a.row = v.row
    WHERE v.tenant = ?1 AND v.visitor = ?2 LIMIT 1";

/// A row if a visitor is stored. `?1` tenant, `?2` visitor.
pub(crate) const VISITORS_HAS: &str = "SELECT 1 FROM visitors WHERE tenant = ?1 AND visitor = ?2";

/// Inserts a visitor without a published snapshot.
pub(crate) const VISITORS_INSERT: &str = "INSERT INTO visitors
    (tenant, visitor, last_seen, version, restore, published, person, profile, actions, segments, attributes, events)
    VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7, ?8, ?9, ?10, ?11)";

/// Writes the best send time of a visitor. `?1` visitor row, `?2` best send time.
pub(crate) const VISITORS_SET_BEST: &str = "UPDATE visitors SET best = ?2 WHERE row = ?1";

/// Marks a visitor as withdrawn, unless it is. `?1` tenant, `?2` visitor, `?3` time.
pub(crate) const VISITORS_WITHDRAW: &str =
    "UPDATE visitors SET withdrawn = ?3 WHERE tenant = ?1 AND visitor = ?2 AND withdrawn IS NULL";

/// Points a visitor to a person with a weight, if either differs. `?1` tenant, `?2` visitor, `?3` person row, `?4`
/// weight.
pub(crate) const VISITORS_POINT_TO_PERSON: &str = "UPDATE visitors SET person = ?3, weight = ?4
    WHERE tenant = ?1 AND visitor = ?2 AND (person <> ?3 OR weight <> ?4)";

/// Records the snapshot that was handed out last. `?1` tenant, `?2` visitor, `?3` version counter, `?4` whether it is
/// truncated.
pub(crate) const VISITORS_MARK_PUBLISHED: &str =
    "UPDATE visitors SET published = ?3, truncated = ?4 WHERE tenant = ?1 AND visitor = ?2";

/// Records the snapshot that was published in bulk. `?1` tenant, `?2` visitor, `?3` version counter, `?4` whether it is
/// truncated, `?5` its best time. A snapshot that was handed out later stays recorded.
pub(crate) const VISITORS_MARK_PUBLISHED_IN_BULK: &str = "UPDATE visitors SET published = ?3, truncated = ?4, best = ?5 WHERE tenant = ?1 AND visitor = ?2 AND published < ?3";

/// Writes the restore epoch of all visitors. `?1` epoch.
pub(crate) const VISITORS_SET_RESTORE_EPOCH: &str = "UPDATE visitors SET restore = ?1";

/// Writes the number of actions of a visitor. `?1` visitor row, `?2` number.
pub(crate) const VISITORS_SET_ACTIONS: &str = "UPDATE visitors SET actions = ?2 WHERE row = ?1";

/// Writes the attributes of a visitor and its version. `?1` visitor row, `?2` attributes, `?3` version counter, `?4`
/// restore epoch.
pub(crate) const VISITORS_SET_ATTRIBUTES_AND_VERSION: &str =
    "UPDATE visitors SET attributes = ?2, version = ?3, restore = ?4 WHERE row = ?1";

/// Writes the segments and the number of actions of a visitor, and its version. `?1` visitor row, `?2` segments, `?3`
/// number, `?4` version counter, `?5` restore epoch. The content changes, so the version does too. The KV gets the new
/// value with the visitor's next change.
pub(crate) const VISITORS_SET_TRIMMED: &str =
    "UPDATE visitors SET segments = ?2, actions = ?3, version = ?4, restore = ?5 WHERE row = ?1";

/// Marks a visitor as withdrawn and keeps an earlier withdrawal. `?1` tenant, `?2` visitor, `?3` time.
pub(crate) const VISITORS_WITHDRAW_ERASED: &str =
    "UPDATE visitors SET withdrawn = ifnull(withdrawn, ?3) WHERE tenant = ?1 AND visitor = ?2";

/// Removes the content of an erased visitor. `?1` visitor row, `?2` empty profile, `?3` version counter, `?4` restore
/// epoch.
pub(crate) const VISITORS_EMPTY: &str =
    "UPDATE visitors SET last_seen = 0, profile = ?2, actions = 0, segments = x'', attributes = x'', events = x'',
    version = ?3, restore = ?4 WHERE row = ?1";

/// Writes the columns of a visitor that new facts extend. `?1` visitor row, `?2` profile, `?3` version counter, `?4`
/// restore epoch, `?5` number of actions, `?6` events.
pub(crate) const VISITORS_SET_FOLDED: &str =
    "UPDATE visitors SET profile = ?2, version = ?3, restore = ?4, actions = ?5, events = ?6 WHERE row = ?1";

/// Writes the newest receipt of a visitor. `?1` visitor row, `?2` time.
pub(crate) const VISITORS_SET_LAST_SEEN: &str = "UPDATE visitors SET last_seen = ?2 WHERE row = ?1";

/// Writes the events of a visitor. `?1` visitor row, `?2` events.
pub(crate) const VISITORS_SET_EVENTS: &str = "UPDATE visitors SET events = ?2 WHERE row = ?1";

/// Writes the segments of a visitor. `?1` visitor row, `?2` segments.
pub(crate) const VISITORS_SET_SEGMENTS: &str = "UPDATE visitors SET segments = ?2 WHERE row = ?1";

/// Writes the attributes of a visitor. `?1` visitor row, `?2` attributes.
pub(crate) const VISITORS_SET_ATTRIBUTES: &str = "UPDATE visitors SET attributes = ?2 WHERE row = ?1";
