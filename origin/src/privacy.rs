//! Carries out erasures, and writes the journal of erasures and the audit trail.

pub mod audit;
pub mod erasure;
pub mod erasure_request;
pub mod reach;
