//! Causeway's origin: it takes facts in, makes people of them, and tells the edge what to write to its KV.
//!
//! Facts walk through the modules in this order: [`http`] → [`intake`] → [`log`], where they are acknowledged, and then
//! [`fold`] → [`link`] → [`publish`], inside one transaction of the [`writer`]'s second thread ([`group`]); until then
//! readers find them in the [`backlog`]. What is decided about facts and people is `causeway_shared`'s; here is what is
//! kept of it.
#![warn(missing_docs)]

pub mod attributes;
pub mod audience;
pub mod audit;
pub mod backlog;
pub mod backup;
pub mod catalogue;
pub mod clock;
pub mod config;
pub mod count;
pub mod describe;
pub mod erase;
pub mod experiment;
pub mod explain;
pub mod export;
pub mod fold;
pub mod group;
pub mod http;
pub mod import;
pub mod intake;
pub mod jobs;
pub mod keyfile;
pub mod link;
pub mod links;
pub mod log;
pub mod log_output;
pub mod metrics;
pub mod names;
pub mod people;
pub mod publish;
pub mod read;
pub mod reconcile;
pub mod reference;
pub mod retention;
pub mod rhythm;
pub mod scrub;
pub mod segments;
pub mod serve;
pub mod spend;
pub mod steering;
pub mod store;
pub mod tenants;
#[cfg(test)]
mod testing;
pub mod tokens;
pub mod train;
pub mod trim;
pub mod units;
pub mod verify;
pub mod writer;
pub mod zones;

/// An error with its causes, on one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
