//! A synthetic market: people with hidden preferences look at pages, tire of ads, click and buy. The edge's engine
//! answers each page, and the origin's code folds and publishes each fact; only people, clock and network are
//! simulated.
//!
//! [`compare`] compares decisions by a model over joined people with other ways; [`budgets`] measures the spend of
//! campaigns beyond their budgets, by the number of locations.

pub mod ads;
pub mod browser;
pub mod budgets;
pub mod compare;
pub mod dice;
pub mod people;
pub mod world;
