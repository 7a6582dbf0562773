//! Filters over a person and a page, and experiments.

pub mod experiment;
pub mod filter;
