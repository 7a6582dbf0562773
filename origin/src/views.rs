//! Reads that join the store with the backlog: visitors, people, counts, segments, attributes.

pub mod attributes;
pub mod count;
pub mod describe;
pub mod read;
pub mod readers;
pub mod segments;
