//! Foundations of every room: clock, settings, key file, time zones, metrics and log output. Contains no SQL.

pub mod attribution;
pub mod clock;
pub mod config;
pub mod folders;
pub(crate) mod http_agent;
pub mod integers;
pub mod job_kinds;
pub mod key_file;
pub mod log_output;
pub mod metrics;
pub mod settings_reference;
pub mod time_zones;
pub mod worker_file;

/// Formats an error and its causes on one line, separated by `: `.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
