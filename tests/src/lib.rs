//! Helpers of the end-to-end tests: a running world, browsers with separate cookies, and waiting for a condition
//! instead of a time.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends at its first failure")]

pub mod bare;
pub mod browser;
pub mod hostile;
pub mod origin;
pub mod standin;
pub mod world;

use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use rustix::process::{Pid, Signal, kill_process};

/// Polls `condition` until it returns a value, for at most a minute; `what` names it in the failure.
pub fn eventually<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    within(Duration::from_secs(60), what, condition)
}

/// Like [`eventually`], for at most `limit`.
pub fn within<T>(limit: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "after {limit:?} this still does not hold: {what}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// Number of cases of a test, short and long: the long one if the variable `CAUSEWAY_LONG` is set, as
/// `cargo xtask test full` does.
#[must_use]
pub fn cases([short, long]: [u64; 2]) -> u64 {
    if std::env::var_os("CAUSEWAY_LONG").is_some() { long } else { short }
}

/// Lets midnight pass, in UTC, where less than two minutes are left: for what counts once a day.
pub fn well_before_midnight() {
    const DAY_MS: u64 = 86_400_000;
    within(Duration::from_secs(150), "a day has begun", || (DAY_MS - bare::now() % DAY_MS > 120_000).then_some(()));
}

/// Waits for the next minute if less than 30 seconds are left, for tests of limits that the local platform counts by
/// the clock's minutes.
pub fn early_in_a_minute() {
    const MINUTE_MS: u64 = 60_000;
    within(Duration::from_secs(60), "a minute has begun", || (bare::now() % MINUTE_MS <= 30_000).then_some(()));
}

/// A child process that ends with its holder, even if the holder's construction fails halfway.
#[derive(Debug)]
pub struct Process(std::process::Child, Signal);

impl Process {
    /// Takes over a child process that ends on this signal.
    #[must_use]
    pub fn new(child: std::process::Child, signal: Signal) -> Self {
        Self(child, signal)
    }

    /// The exit status, if the process ended on its own.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.0.try_wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process id is invalid after the process was waited for.
        if let Ok(None) = self.0.try_wait() {
            let _ = kill_process(Pid::from_child(&self.0), self.1);
            let _ = self.0.wait();
        }
    }
}

/// A test on a running world, with its name.
pub type Test<W> = (&'static str, fn(&W));

/// Runs tests on one world in parallel, and stops the world afterwards in any case.
pub fn run<W: Sync + Send + 'static>(make: fn() -> W, tests: &[Test<W>]) -> ! {
    run_with(Arguments::from_args(), make, tests)
}

/// Like [`run`], but one test after the other, for tests that change what others would see.
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
