//! An open-loop load: requests are due at fixed times, whether or not earlier ones are answered. A latency is measured
//! from the due time, so that it includes the wait behind earlier requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::load::connect;
use crate::stop::Stop;

/// A request of this latency shows that the rate is too high, and ends the step.
const LATE: Duration = Duration::from_millis(500);

/// The load of one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Requests per second, over all connections.
    pub(super) rate: f64,
    pub(super) connections: usize,
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

/// Percentiles of the latency, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// Sends the requests of a step; `pick` chooses each by its number.
pub(super) fn press<'r>(
    port: u16,
    request: &(impl Fn(u64) -> &'r [u8] + Sync),
    step: Step,
    stop: &Stop,
) -> Result<Latency> {
    let over = AtomicBool::new(false);
    let start = Instant::now() + Duration::from_millis(20);
    let one = |lane: usize| -> Result<Vec<f64>> {
        let mut connection = connect(port)?;
        let mut took = Vec::new();
        for number in (lane as u64..).step_by(step.connections) {
            let after = Duration::from_secs_f64(number as f64 / step.rate);
            let due = start + after;
            if after > step.warm_up + step.measured || over.load(Ordering::Relaxed) || stop.check().is_err() {
                break;
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let answer = connection.exchange(request(number))?;
            ensure!(answer.status() == Some(200), "an answer with status {:?} under load", answer.status());
            let latency = due.elapsed();
            over.fetch_or(latency > LATE, Ordering::Relaxed);
            if after > step.warm_up {
                took.push(latency.as_secs_f64() * 1e3);
            }
        }
        Ok(took)
    };
    let mut took = Vec::new();
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..step.connections).map(|lane| scope.spawn(move || one(lane))).collect();
        lanes.into_iter().try_for_each(|lane| match lane.join() {
            Ok(of_lane) => {
                took.extend(of_lane?);
                Ok(())
            }
            Err(_) => bail!("a thread of the load panicked"),
        })
    })?;
    stop.check()?;
    if over.load(Ordering::Relaxed) {
        return Ok(Latency { p50: f64::INFINITY, p99: f64::INFINITY });
    }
    took.sort_by(f64::total_cmp);
    let at = |part: usize| took.get(took.len() * part / 100).copied().unwrap_or(f64::INFINITY);
    Ok(Latency { p50: at(50), p99: at(99) })
}
