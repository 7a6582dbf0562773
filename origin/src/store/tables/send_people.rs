//! Statements of the table `send_people`: the people that a send drew, in the order of delivery.

/// Reads the drawn people of all sends.
pub(crate) const SEND_PEOPLE_ALL: &str = "SELECT send, place, visitor, arm, outcome, at FROM send_people";

/// Deletes the people of the send with name `?2` of tenant `?1`.
pub(crate) const SEND_PEOPLE_DELETE_OF_NAMED_SEND: &str =
    "DELETE FROM send_people WHERE send IN (SELECT send FROM sends WHERE tenant = ?1 AND name = ?2)";

/// Inserts a drawn person with its outcome.
pub(crate) const SEND_PEOPLE_INSERT: &str =
    "INSERT INTO send_people (send, place, visitor, arm, outcome, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Reads the delivered people of send `?1` at the positions from `?2` up to, not including, `?3`, in the order of
/// delivery.
pub(crate) const SEND_PEOPLE_DELIVERED_IN_RANGE: &str = "SELECT place, visitor, arm, at FROM send_people
    WHERE send = ?1 AND place >= ?2 AND place < ?3 AND outcome = 1 ORDER BY place";

/// Deletes visitor `?2` from all sends of tenant `?1`. Its position stays empty.
pub(crate) const SEND_PEOPLE_DELETE_VISITOR: &str =
    "DELETE FROM send_people WHERE visitor = ?2 AND send IN (SELECT send FROM sends WHERE tenant = ?1)";

/// Reads the people of send `?1` at the positions from `?2` up to, not including, `?3`, in the order of delivery.
pub(crate) const SEND_PEOPLE_IN_RANGE: &str = "SELECT place, visitor, arm FROM send_people
    WHERE send = ?1 AND place >= ?2 AND place < ?3 ORDER BY place";

/// Stores the outcome of the person at position `?2`.
pub(crate) const SEND_PEOPLE_SET_OUTCOME: &str =
    "UPDATE send_people SET outcome = ?3, arm = ?4, at = ?5 WHERE send = ?1 AND place = ?2";

/// Deletes at most `?2` people of send `?1`.
pub(crate) const SEND_PEOPLE_DELETE_SOME: &str = "DELETE FROM send_people WHERE (send, place) IN
    (SELECT send, place FROM send_people WHERE send = ?1 LIMIT ?2)";

/// Inserts a drawn person, unless it was erased meanwhile; its position then stays empty.
pub(crate) const SEND_PEOPLE_INSERT_UNLESS_ERASED: &str = "INSERT INTO send_people (send, place, visitor, arm)
    SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM erased WHERE tenant = ?5 AND visitor = ?3)";

/// Inserts a drawn person of an export into the send with name `?2`.
pub(crate) const SEND_PEOPLE_INSERT_BY_SEND_NAME: &str =
    "INSERT INTO send_people (send, place, visitor, arm, outcome, at)
    SELECT send, ?3, ?4, ?5, ?6, ?7 FROM sends WHERE tenant = ?1 AND name = ?2";
