//! The only module that reads the clock and draws random bits.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use causeway_shared::base::ids::Millis;

/// Milliseconds since the Unix epoch; 0 on a machine whose clock is before it.
#[must_use]
pub fn now() -> Millis {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|d| Millis::try_from(d.as_millis()).ok()).unwrap_or(0)
}

/// Start of the clock of [`steady_now`].
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Milliseconds of a monotonic clock that starts at 1 in this process; for ages within the process.
#[must_use]
pub fn steady_now() -> u64 {
    u64::try_from(BEGAN.elapsed().as_millis()).map_or(u64::MAX, |ms| ms.saturating_add(1))
}

/// Random bytes from the operating system.
///
/// # Errors
/// The operating system's error.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
