//! Causeway's domain: what a fact is, how facts join into profiles, who is one person, and what one
//! request may read, say and remember.
//!
//! Everything here maps values to values. There is no clock, no random source, no I/O, no async and no
//! logging: time, random bits and keys are arguments. The edge (WebAssembly) and the origin (native) run
//! this same code, so that both sides of every wire agree by construction.
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
