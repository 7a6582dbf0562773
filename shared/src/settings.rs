//! The configuration of tenants, the queues of facts, and the vocabulary of action types and placements.

pub mod config;
pub mod facts_queues;
pub mod vocabulary;
