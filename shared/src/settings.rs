//! The configuration of tenants, and the vocabulary of action types and placements.

pub mod config;
pub mod vocabulary;
