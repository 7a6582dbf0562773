//! Ids, times, bounds, random draws and packed bytes: values that every other room uses. This room knows no fact.

pub mod bucket;
pub(crate) mod calendar;
pub mod first_records;
pub mod ids;
pub mod json;
pub mod limits;
pub(crate) mod moment;
pub mod money;
pub mod number;
pub mod packed;
pub mod placeholder;
pub mod planted;
pub mod problems;
pub mod random;
#[cfg(feature = "schema")]
pub(crate) mod schema;
pub mod time;
