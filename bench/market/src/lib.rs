//! A synthetic market: people with hidden tastes look at pages, get tired of ads, click and buy. Every page goes through the
//! edge's own engine, every fact through the origin's fold and publish; only the people, the clock and the wires between are
//! made up.
//!
//! [`compare`] says what decisions by a model over bridged people are worth beside others; [`budgets`] how far campaigns
//! spend beyond their budgets, by the number of locations.

pub mod ads;
pub mod browser;
pub mod budgets;
pub mod compare;
pub mod dice;
pub mod people;
pub mod world;
