//! Backup, restore, export, import, trim, reconciliation, scrub, and names that are removed or retyped.

pub mod backup;
pub mod export;
mod file_digest;
pub mod forget_event_names;
pub mod forget_names;
pub mod import;
pub mod name_uses;
pub mod reconcile;
pub mod retype_attribute;
pub mod scrub;
pub mod trim;
