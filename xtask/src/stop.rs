//! Ctrl-C, Ctrl-\ and SIGTERM as a flag that waiting code checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// A flag that a signal sets; it is never cleared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

/// The error of a step that a signal stopped.
#[derive(Debug)]
pub(crate) struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stopped by a signal")
    }
}

impl std::error::Error for Stopped {}

impl Stop {
    /// Registers the signals: from now on a signal sets the flag and does not end this process.
    pub(crate) fn on_signals() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGQUIT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot watch for signals")?;
        }
        Ok(Self(flag))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the flag, as a signal does.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// # Errors
    /// [`Stopped`] if a signal arrived, so that `?` ends the running step.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() { Err(Stopped.into()) } else { Ok(()) }
    }
}
