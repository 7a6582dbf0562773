//! Causeway's origin: it accepts facts, links visitors into people, and hands KV writes to the edge.
//!
//! Facts pass the modules in this order: [`api`] → [`ingest::intake`] → [`ingest::log`], where they are acknowledged,
//! and then [`profiles::fold`] → [`identity::link`] → [`kv::publish`] in one transaction ([`pipeline::commit`]) of the
//! folding thread ([`pipeline::writer`]). Until then readers find them in [`ingest::backlog`]. `causeway_shared`
//! decides about facts and people; this crate stores the results.
#![warn(missing_docs)]

pub mod api;
pub mod audience;
pub mod base;
pub mod campaigns;
pub mod erasures;
pub mod identity;
pub mod ingest;
pub mod jobs;
pub mod kv;
pub mod maintenance;
pub mod outbox;
pub mod pipeline;
pub mod privacy;
pub mod profiles;
pub mod store;
#[cfg(test)]
mod testing;
pub mod views;
