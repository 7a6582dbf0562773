//! Statements of the table `offer_codes_given`: assigned offer codes, including those of erased visitors.

/// Number of a campaign's assigned codes below a number. `?1` tenant, `?2` campaign, `?3` number.
pub(crate) const OFFER_CODES_GIVEN_COUNT_OF_CAMPAIGN: &str =
    "SELECT count(*) FROM offer_codes_given WHERE tenant = ?1 AND campaign = ?2 AND number < ?3";

/// Records an assigned offer code of a campaign, unless it is recorded.
pub(crate) const OFFER_CODES_GIVEN_INSERT_NEW: &str =
    "INSERT OR IGNORE INTO offer_codes_given (tenant, campaign, number) VALUES (?1, ?2, ?3)";
