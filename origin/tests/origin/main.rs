//! The real binary, started on a free port over a store in a temporary folder, and driven over HTTP.
#![expect(clippy::unwrap_used, reason = "tests")]

mod admin;
mod audience;
mod audit;
mod backup;
mod bad_input;
mod bulk_publishing;
mod command_line;
mod data_directory;
mod durability;
mod erase;
mod experiments;
mod export;
mod import;
mod jobs;
mod links;
mod listener;
mod log_output;
mod parquet_files;
mod sends;
mod support;
mod sync;
