//! The HTTP client of calls to other services.

use std::time::Duration;

/// A connection pool. A call fails after `patience`; a status is an answer, not an error; a redirect is not followed,
/// because it could lead a secret or a message elsewhere.
pub(crate) fn http_agent(patience: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(patience))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent("causeway");
    config.build().into()
}
