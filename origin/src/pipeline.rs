//! The list of steps of one transaction, and the two threads that run it.

pub mod group;
pub mod writer;
