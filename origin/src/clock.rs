//! The one place that reads the clock.

use std::time::{SystemTime, UNIX_EPOCH};

use causeway_shared::ids::Millis;

/// Milliseconds since the Unix epoch; 0 on a machine whose clock is before it.
#[must_use]
pub fn now() -> Millis {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|d| Millis::try_from(d.as_millis()).ok()).unwrap_or(0)
}
