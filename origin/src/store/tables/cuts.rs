//! Statements of the table `cuts`: visitors that left a person.

/// Cuts of a person, with the permission state of each visitor. `?1` person row.
pub(crate) const CUTS_OF_PERSON: &str = "SELECT c.visitor, c.at, v.withdrawn IS NOT NULL FROM cuts c
    JOIN people p ON p.person = c.person
    JOIN visitors v ON v.tenant = p.tenant AND v.visitor = c.visitor WHERE c.person = ?1";

/// People of a tenant that a visitor left. `?1` tenant, `?2` visitor.
pub(crate) const CUTS_PEOPLE_OF_VISITOR: &str = "SELECT c.person FROM cuts c JOIN people p ON p.person = c.person
    WHERE c.visitor = ?2 AND p.tenant = ?1";

/// Inserts one cut of a person.
pub(crate) const CUTS_INSERT: &str = "INSERT INTO cuts (person, visitor, at) VALUES (?1, ?2, ?3)";

/// Deletes the cuts of a person. `?1` person row.
pub(crate) const CUTS_DELETE_OF_PERSON: &str = "DELETE FROM cuts WHERE person = ?1";

/// Deletes the cuts of a visitor's person. `?1` visitor row.
pub(crate) const CUTS_DELETE_OF_VISITORS_PERSON: &str =
    "DELETE FROM cuts WHERE person = (SELECT person FROM visitors WHERE row = ?1)";
