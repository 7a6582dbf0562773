//! Statements of the table `attribute_names`: tokens, names and kinds of attributes.

/// Token of an attribute. `?1` tenant, `?2` name, `?3` kind of its values.
pub(crate) const ATTRIBUTE_NAMES_TOKEN_OF_NAME: &str =
    "SELECT token FROM attribute_names WHERE tenant = ?1 AND name = ?2 AND kind = ?3";

/// KV keys of tenants: pages of attribute names, published catalogues, and pointers. `?1` tokens per page. Kinds of KV
/// keys are 256 for a page of names and 257 for a catalogue.
pub(crate) const ATTRIBUTE_NAMES_KV_KEYS: &str = "SELECT tenant, 256, token / ?1 FROM attribute_names GROUP BY 1, 3
    UNION ALL SELECT tenant, 257, version FROM catalogues WHERE published IS NOT NULL
    UNION ALL SELECT tenant, kind, 0 FROM standing";

/// Name of a token. `?1` tenant, `?2` token.
pub(crate) const ATTRIBUTE_NAMES_NAME_OF_TOKEN: &str =
    "SELECT name FROM attribute_names WHERE tenant = ?1 AND token = ?2";

/// Tenants and their pages of names. `?1` tokens per page.
pub(crate) const ATTRIBUTE_NAMES_PAGES: &str = "SELECT DISTINCT tenant, token / ?1 FROM attribute_names";

/// All names of all tenants, in the order of tenant and token.
pub(crate) const ATTRIBUTE_NAMES_ALL: &str =
    "SELECT tenant, token, name, kind FROM attribute_names ORDER BY tenant, token";

/// Names of all tenants that stand for a removed name.
pub(crate) const ATTRIBUTE_NAMES_FORGOTTEN: &str =
    "SELECT tenant, token, name FROM attribute_names WHERE name GLOB '_forgotten.*'";

/// Names of a tenant, in the order of their tokens. `?1` tenant.
pub(crate) const ATTRIBUTE_NAMES_OF_TENANT: &str =
    "SELECT name, kind, token FROM attribute_names WHERE tenant = ?1 ORDER BY token";

/// Inserts a name if its token is the tenant's next one, so that tokens have no gap. `?1` tenant, `?2` token, `?3`
/// name, `?4` kind of its values.
pub(crate) const ATTRIBUTE_NAMES_APPEND: &str = "INSERT OR IGNORE INTO attribute_names (tenant, token, name, kind)
    SELECT ?1, ?2, ?3, ?4 WHERE ?2 = (SELECT count(*) FROM attribute_names WHERE tenant = ?1)";

/// Writes the name of a token, and replaces the token's previous name and kind.
pub(crate) const ATTRIBUTE_NAMES_UPSERT: &str =
    "INSERT INTO attribute_names (tenant, token, name, kind) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (tenant, token) DO UPDATE SET name = excluded.name, kind = excluded.kind";

/// Gives a token another name and another kind of values. `?1` tenant, `?2` token, `?3` name, `?4` kind.
pub(crate) const ATTRIBUTE_NAMES_REDEFINE: &str =
    "UPDATE attribute_names SET name = ?3, kind = ?4 WHERE tenant = ?1 AND token = ?2";

/// Gives a token another name. `?1` tenant, `?2` token, `?3` name.
pub(crate) const ATTRIBUTE_NAMES_RENAME: &str = "UPDATE attribute_names SET name = ?3 WHERE tenant = ?1 AND token = ?2";
