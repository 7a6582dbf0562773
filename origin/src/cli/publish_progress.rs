//! The progress of publishing all keys, for `causeway job run publish`.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use causeway_origin::outbox::queue::count_bulk_keys;

use super::output::{print_line, progress_bar};
use super::{WritableStore, is_served};

/// Shortest pause between two counts.
const LOOK: Duration = Duration::from_secs(1);
/// Pause after a count, in multiples of its duration: a count over very many keys takes seconds.
const PAUSES: u32 = 10;
/// Time between two lines where standard error is no terminal.
const LINE: Duration = Duration::from_secs(10);

/// Waits until the keys of bulk operations are written, and shows progress, rate and remaining time. Without a serving
/// origin nothing is written, so that it says so and returns.
pub(super) fn await_keys(opened: &WritableStore, wait: bool) -> anyhow::Result<()> {
    let on_terminal = std::io::stderr().is_terminal();
    if !wait && !on_terminal {
        return Ok(());
    }
    if !is_served(&opened.config) {
        print_line("no origin serves from this data directory: the keys are written once `causeway serve` runs");
        return Ok(());
    }
    let all = count_bulk_keys(&opened.conn)?;
    let bar = progress_bar(all, "{pos} of {len} keys, {per_sec}");
    let (begun, mut line) = (Instant::now(), Instant::now());
    loop {
        let looked = Instant::now();
        let left = count_bulk_keys(&opened.conn)?;
        let pause = LOOK.max(looked.elapsed() * PAUSES);
        bar.set_length(all.max(left));
        bar.set_position(all.saturating_sub(left));
        if left == 0 {
            bar.finish_and_clear();
            print_line(&format!("all {all} keys are written, after {} s", begun.elapsed().as_secs()));
            return Ok(());
        }
        if !on_terminal && line.elapsed() >= LINE {
            line = Instant::now();
            print_line(&progress_line(all, left, begun.elapsed()));
        }
        std::thread::sleep(pause);
    }
}

/// One line of progress.
fn progress_line(all: u64, left: u64, elapsed: Duration) -> String {
    let written = all.saturating_sub(left);
    let rate = written as f64 / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let rest =
        if rate > 0.0 { format!("{:.0} s left", left as f64 / rate) } else { "no key is written yet".to_owned() };
    format!("{written} of {all} keys, {rate:.0} keys/s, {rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_progress_has_the_rate_and_the_remaining_time() {
        let line = progress_line(1_000_000, 750_000, Duration::from_secs(10));
        assert_eq!(line, "250000 of 1000000 keys, 25000 keys/s, 30 s left");
        assert!(progress_line(10, 10, Duration::from_secs(1)).ends_with("no key is written yet"));
    }
}
