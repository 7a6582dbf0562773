//! Statements of the table `spend`: the spend of campaigns by day.

/// Adds to the spend of a campaign on a day. Both terms are capped at half of the range, so that the sum does not
/// overflow.
pub(crate) const SPEND_ADD_NANOS: &str =
    "INSERT INTO spend (tenant, campaign, day, nanos) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE
    SET nanos = min(nanos, 4611686018427387903) + min(excluded.nanos, 4611686018427387903)";

/// Reads the spend of campaign `?2` on day `?3` and on all days (day -1).
pub(crate) const SPEND_OF_DAY_AND_TOTAL: &str =
    "SELECT day, nanos FROM spend WHERE tenant = ?1 AND campaign = ?2 AND day IN (?3, -1)";
