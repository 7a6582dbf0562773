//! What the end-to-end tests stand on: a running world, browsers with their own cookies, and waiting for a
//! condition instead of sleeping.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests end at the first thing that is not so"
)]

pub mod bare;
pub mod browser;
pub mod hostile;
pub mod origin;
pub mod standin;
pub mod world;

use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use rustix::process::{Pid, Signal, kill_process};

/// Asks until `condition` gives a value, for at most a minute; `what` names it in the failure.
pub fn eventually<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    within(Duration::from_secs(60), what, condition)
}

/// The same for at most so long.
pub fn within<T>(limit: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "after {limit:?} it is still not so: {what}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// Lets midnight pass, in UTC, where less than two minutes are left: for what counts once a day.
pub fn well_before_midnight() {
    const DAY_MS: u64 = 86_400_000;
    within(Duration::from_secs(150), "a day has begun", || (DAY_MS - bare::now() % DAY_MS > 120_000).then_some(()));
}

/// Lets the minute pass where less than 30 seconds of it are left: for what the platform limits, which here counts by the
/// clock's minutes.
pub fn early_in_a_minute() {
    const MINUTE_MS: u64 = 60_000;
    within(Duration::from_secs(60), "a minute has begun", || (bare::now() % MINUTE_MS <= 30_000).then_some(()));
}

/// A process that ends with its holder, also where that is never made as something before it fails.
#[derive(Debug)]
pub struct Process(std::process::Child, Signal);

impl Process {
    /// Holds one that ends on this signal.
    #[must_use]
    pub fn new(child: std::process::Child, signal: Signal) -> Self {
        Self(child, signal)
    }

    /// How it ended by itself.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.0.try_wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that was waited for has no number any more.
        if let Ok(None) = self.0.try_wait() {
            let _ = kill_process(Pid::from_child(&self.0), self.1);
            let _ = self.0.wait();
        }
    }
}

/// A test over a running world.
pub type Test<W> = (&'static str, fn(&W));

/// Runs tests over one world, side by side, and stops it afterwards, whatever happened.
pub fn run<W: Sync + Send + 'static>(make: fn() -> W, tests: &[Test<W>]) -> ! {
    run_with(Arguments::from_args(), make, tests)
}

/// The same one after the other: for tests that change what the others would see.
pub fn run_in_turn<W: Sync + Send + 'static>(make: fn() -> W, tests: &[Test<W>]) -> ! {
    run_with(Arguments { test_threads: Some(1), ..Arguments::from_args() }, make, tests)
}

fn run_with<W: Sync + Send + 'static>(arguments: Arguments, make: fn() -> W, tests: &[Test<W>]) -> ! {
    if arguments.list {
        let listed = tests.iter().map(|(name, _)| Trial::test(*name, || Ok(()))).collect();
        libtest_mimic::run(&arguments, listed).exit();
    }
    let world = std::sync::Arc::new(make());
    let trial = |(name, run): &Test<W>| {
        let (world, run) = (std::sync::Arc::clone(&world), *run);
        Trial::test(*name, move || {
            run(&world);
            Ok(())
        })
    };
    let conclusion = libtest_mimic::run(&arguments, tests.iter().map(trial).collect());
    drop(world);
    conclusion.exit()
}

/// Base64url without padding (RFC 4648 §5).
#[must_use]
pub fn base64url(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}
