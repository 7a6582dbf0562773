//! Audiences: the number and properties of the people who match a filter, counted exactly or from a sample.

pub mod estimate;
pub mod index;
pub mod send;
