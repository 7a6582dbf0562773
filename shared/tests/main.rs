//! The domain's tests from outside of the crate. One program: a program for each file would compile the laws' library
//! for each. The fuzz tests are a program of their own, because they measure time.

mod actions;
mod attributes;
mod common;
mod events;
mod filters;
mod flat;
mod flips;
mod forest;
#[path = "common/frame.rs"]
mod frame;
mod golden;
mod identity_flow;
mod identity_random;
mod laws;
mod ledger;
mod offer_codes;
mod people;
mod segments;
mod stale;
mod unknown;
#[path = "common/world.rs"]
mod world;
