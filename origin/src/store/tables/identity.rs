//! Statements of the table `identity` in the erasure journal's file with one row: the store that it belongs to.

/// Reads the store that the journal belongs to.
pub(crate) const IDENTITY_STORE: &str = "SELECT identity FROM identity";

/// Binds the journal to a store. An unchanged identity writes nothing.
pub(crate) const IDENTITY_UPSERT: &str = "INSERT INTO identity (id, identity) VALUES (1, ?1)
    ON CONFLICT DO UPDATE SET identity = excluded.identity WHERE identity <> excluded.identity";
