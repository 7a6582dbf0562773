//! Statements of the table `offer_codes`: the offer codes that visitors hold, the first of each campaign.

/// Number of a campaign's recipients, and number of recipients with several codes, counted by person. `?1` tenant, `?2`
/// campaign. The cross join reads the codes first.
pub(crate) const OFFER_CODES_COUNT_PEOPLE_OF_CAMPAIGN: &str =
    "SELECT count(*), coalesce(sum(numbers > 1), 0) FROM (SELECT count(DISTINCT u.number) AS numbers
    FROM offer_codes u CROSS JOIN visitors v ON v.row = u.visitor
    WHERE v.tenant = ?1 AND u.campaign = ?2 AND v.withdrawn IS NULL GROUP BY v.person)";

/// Offer codes of a visitor. `?1` visitor row.
pub(crate) const OFFER_CODES_OF_VISITOR: &str = "SELECT campaign, number, at FROM offer_codes WHERE visitor = ?1";

/// Writes a visitor's offer code of a campaign, and replaces the stored one.
pub(crate) const OFFER_CODES_REPLACE: &str =
    "INSERT OR REPLACE INTO offer_codes (visitor, campaign, number, at) VALUES (?1, ?2, ?3, ?4)";

/// Deletes all offer codes of a visitor. `?1` visitor row.
pub(crate) const OFFER_CODES_DELETE_OF_VISITOR: &str = "DELETE FROM offer_codes WHERE visitor = ?1";

/// Deletes a visitor's offer codes of campaigns below a code. `?1` visitor row, `?2` code.
pub(crate) const OFFER_CODES_DELETE_BELOW: &str = "DELETE FROM offer_codes WHERE visitor = ?1 AND campaign < ?2";
