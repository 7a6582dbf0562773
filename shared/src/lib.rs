//! Causeway's domain: what a fact is, how facts join into profiles, who is one person, and what one
//! request may read, say and remember.
//!
//! Everything here maps values to values. There is no clock, no random source, no I/O, no async and no
//! logging: time, random bits and keys are arguments. The edge (WebAssembly) and the origin (native) run
//! this same code, so that both sides of every wire agree by construction.
#![warn(missing_docs)]
#![warn(clippy::indexing_slicing)]

pub mod actions;
pub mod attributes;
pub mod audience;
pub mod bucket;
pub mod budget;
pub mod catalogue;
pub mod columns;
pub mod config;
pub mod consent;
pub mod cookie;
pub mod decision;
pub mod delivery;
pub mod events;
pub mod evidence;
pub mod experiment;
pub mod fact;
pub mod filter;
pub mod first;
pub mod identity;
pub mod ids;
pub mod json;
pub mod keys;
pub mod kv;
pub mod ledger;
pub mod limits;
pub mod membership;
pub mod model;
pub mod number;
pub mod orders;
pub mod packed;
pub mod person;
pub mod placeholder;
pub mod planted;
pub mod problems;
pub mod profile;
pub mod proof;
pub mod random;
pub mod rhythm;
pub mod segments;
pub mod steering;
pub mod strict;
pub mod sync_auth;
pub mod time;
pub mod token;
pub mod units;
pub mod view;
pub mod visitor_token;
pub mod vocabulary;
pub mod wire;
