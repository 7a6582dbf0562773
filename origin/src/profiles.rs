//! Folds facts into one visitor's rows: deduplication, counters, quarantine.

pub mod buckets;
pub mod check;
pub mod dedup;
pub mod exposures;
pub mod fold;
pub mod offer_codes;
pub mod parts;
pub mod placed;
pub mod purchases;
pub mod quarantine;
