//! Validates facts, writes them to the durable log, and serves the facts that are not folded yet.

pub mod backlog;
pub mod intake;
pub mod log;
pub mod marker;
pub mod start_error;
