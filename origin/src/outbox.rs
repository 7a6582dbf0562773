//! Decides which KV keys are due, in which order, and to which consumer they are leased.

pub mod clock_rollback;
pub mod fair_queue;
pub mod kv_key;
pub mod queue;
pub mod unconfigured_tenants;
