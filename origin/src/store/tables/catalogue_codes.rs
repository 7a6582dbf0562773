//! Statements of the table `catalogue_codes`: the codes of ids in catalogues, which never change.

/// Reads all codes of tenant `?1`.
pub(crate) const CATALOGUE_CODES_OF_TENANT: &str = "SELECT sort, id, code FROM catalogue_codes WHERE tenant = ?1";

/// Reads the code of id `?3` of sort `?2`.
pub(crate) const CATALOGUE_CODES_BY_ID: &str =
    "SELECT code FROM catalogue_codes WHERE tenant = ?1 AND sort = ?2 AND id = ?3";

/// Inserts the code of an id.
pub(crate) const CATALOGUE_CODES_INSERT: &str =
    "INSERT INTO catalogue_codes (tenant, sort, id, code) VALUES (?1, ?2, ?3, ?4)";

/// Ends the counting of conversions at `?2` for all experiments of tenant `?1` that count now. The caller then sets the
/// conversions of the new version.
pub(crate) const CATALOGUE_CODES_END_CONVERSIONS: &str = "UPDATE catalogue_codes SET conversion_until = ?2
    WHERE tenant = ?1 AND conversion IS NOT NULL AND conversion_until IS NULL";

/// Stores the conversions that the experiments of version `?2` count; `purchase` is the default. They have no end.
pub(crate) const CATALOGUE_CODES_SET_CONVERSIONS: &str = "UPDATE catalogue_codes
    SET conversion = ifnull(e.value ->> '$.conversion', 'purchase'), conversion_until = NULL
    FROM catalogues c, json_each(c.experiments) e WHERE c.tenant = ?1 AND c.version = ?2
        AND catalogue_codes.tenant = ?1 AND sort = 'experiment' AND code = e.value ->> '$.code'";

/// Reads the conversions that experiments count now or counted at `?1` or later, over all tenants.
pub(crate) const CATALOGUE_CODES_COUNTED_CONVERSIONS: &str = "SELECT tenant, code, conversion FROM catalogue_codes
    WHERE conversion IS NOT NULL AND ifnull(conversion_until, ?1) >= ?1";

/// Caps `conversion_until` at `?1` if it is more than `?2` later.
pub(crate) const CATALOGUE_CODES_CAP_CONVERSION_UNTIL: &str =
    "UPDATE catalogue_codes SET conversion_until = ?1 WHERE conversion_until > ?1 + ?2";
