//! Causeway's origin: it takes facts in, makes people of them, and tells the edge what to write to its KV.
//!
//! Facts walk through the modules in this order: [`http`] → [`intake`] → [`log`], where they are acknowledged, and then
//! [`fold`] → [`link`] → [`publish`], inside one transaction of the [`writer`]'s second thread ([`group`]); until then
//! readers find them in the [`backlog`]. What is decided about facts and people is `causeway_shared`'s; here is what is
//! kept of it.
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
