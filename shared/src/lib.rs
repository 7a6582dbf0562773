//! Causeway's domain: facts, their join into profiles, the people that evidence connects, and the decisions for one
//! request.
//!
//! All functions map values to values. There is no clock, no random source, no I/O, no async and no logging: time,
//! random bits and keys are arguments. The edge (WebAssembly) and the origin (native) run this same code, so that both
//! sides of each wire format agree.
#![warn(missing_docs)]
#![warn(clippy::indexing_slicing)]

pub mod ads;
pub mod audience;
pub mod base;
pub mod consent;
pub mod facts;
pub mod identity;
pub mod keys;
pub mod profiles;
pub mod settings;
pub mod targeting;
pub mod wire;
