//! Statements of the table `names_brought`: names that pages of a visitor introduced on a day.

/// Sum of the names that a tenant's pages brought on a day, and the part of one visitor. `?1` tenant, `?2` 0 for
/// attributes or 1 for events, `?3` day, `?4` visitor.
pub(crate) const NAMES_BROUGHT_SUMS_OF_DAY: &str =
    "SELECT ifnull(sum(names), 0), ifnull(sum(names) FILTER (WHERE visitor = ?4), 0)
    FROM names_brought WHERE tenant = ?1 AND what = ?2 AND day = ?3";

/// Adds to the number of names that a visitor's pages brought on a day.
pub(crate) const NAMES_BROUGHT_ADD: &str =
    "INSERT INTO names_brought (tenant, what, day, visitor, names) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT DO UPDATE SET names = names + excluded.names";

/// Adds a visitor's numbers to those of another one. `?1` tenant, `?2` visitor, `?3` receiving visitor.
pub(crate) const NAMES_BROUGHT_COPY_TO_VISITOR: &str = "INSERT INTO names_brought (tenant, what, day, visitor, names)
    SELECT tenant, what, day, ?3, names FROM names_brought WHERE tenant = ?1 AND visitor = ?2
    ON CONFLICT DO UPDATE SET names = names + excluded.names";

/// Deletes the rows of all days but one. `?1` tenant, `?2` 0 for attributes or 1 for events, `?3` day.
pub(crate) const NAMES_BROUGHT_DELETE_OTHER_DAYS: &str =
    "DELETE FROM names_brought WHERE tenant = ?1 AND what = ?2 AND day <> ?3";

/// Deletes the rows of a visitor. `?1` tenant, `?2` visitor.
pub(crate) const NAMES_BROUGHT_DELETE_OF_VISITOR: &str = "DELETE FROM names_brought WHERE tenant = ?1 AND visitor = ?2";
