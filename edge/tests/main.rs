//! The edge's tests from outside of the crate. One program: a program for each file would compile the engine for each.

mod allocation;
mod attributes;
mod bounds;
mod browser;
mod catalogue;
mod clicks;
mod consent;
mod cookies;
mod erasure;
mod events;
mod fuzz;
#[path = "../../shared/tests/common/hostile.rs"]
mod hostile;
mod me;
mod reservations;
mod stale;
mod tokens;
mod unknown;
mod waiting_events;
