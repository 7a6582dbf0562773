//! Publishing in bulk: the origin itself writes many keys with one call of the platform's REST API.
//!
//! A batch takes these steps: [`lease`] reserves rows of the outbox under one version, in a short transaction;
//! [`values`] builds their values from a read connection; [`client`] sends them; and [`lease`] settles the rows that
//! the platform acknowledged. The rules of the publish consumer hold: a leased key has no other writer until it is
//! settled or its lease expires, and a row whose write may still arrive late is written once more after that.
//!
//! Only snapshots, tombstones and lookups are published in bulk. Keys of whole tenants are few and belong to the
//! publish consumer.

pub mod client;
pub mod lease;
pub mod values;

#[cfg(test)]
mod tests;
