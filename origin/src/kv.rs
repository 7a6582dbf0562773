//! Builds, leases and verifies the values that the KV holds.

pub mod bulk;
pub mod explain;
pub mod publish;
pub mod republish;
pub mod snapshot;
pub mod value;
pub mod value_error;
pub mod verify;
