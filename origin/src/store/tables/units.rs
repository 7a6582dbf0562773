//! Statements of the table `units`: the offer codes that visitors hold, the first of each campaign.

/// Number of a campaign's recipients, and number of recipients with several codes, counted by person. `?1` tenant, `?2`
/// campaign. The cross join reads the codes first.
pub(crate) const UNITS_COUNT_PEOPLE_OF_CAMPAIGN: &str =
    "SELECT count(*), coalesce(sum(numbers > 1), 0) FROM (SELECT count(DISTINCT u.number) AS numbers
    FROM units u CROSS JOIN visitors v ON v.row = u.visitor
    WHERE v.tenant = ?1 AND u.campaign = ?2 AND v.withdrawn IS NULL GROUP BY v.person)";

/// Offer codes of a visitor. `?1` visitor row.
pub(crate) const UNITS_OF_VISITOR: &str = "SELECT campaign, number, at FROM units WHERE visitor = ?1";

/// Writes a visitor's offer code of a campaign, and replaces the stored one.
pub(crate) const UNITS_REPLACE: &str =
    "INSERT OR REPLACE INTO units (visitor, campaign, number, at) VALUES (?1, ?2, ?3, ?4)";

/// Deletes all offer codes of a visitor. `?1` visitor row.
pub(crate) const UNITS_DELETE_OF_VISITOR: &str = "DELETE FROM units WHERE visitor = ?1";

/// Deletes a visitor's offer codes of campaigns below a code. `?1` visitor row, `?2` code.
pub(crate) const UNITS_DELETE_BELOW: &str = "DELETE FROM units WHERE visitor = ?1 AND campaign < ?2";
