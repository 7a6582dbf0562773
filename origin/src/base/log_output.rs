//! The process's log: a separate thread writes the lines to standard error. A stopped reader, a closed pipe or a full
//! disk costs lines, which are counted; the service neither ends nor waits.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Most lines that wait for standard error, about 500 KB; later lines are lost until there is room.
const WAITING_LINES: usize = 2_000;

/// Lines that standard error refused.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Lines lost because the queue was full.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// Longest wait for unwritten lines at the end of the process.
const END_WAIT: Duration = Duration::from_secs(2);

/// The log of the process. Dropping it writes the waiting lines, for at most [`END_WAIT`].
#[derive(Debug)]
pub struct LogOutput(Option<WorkerGuard>);

impl Drop for LogOutput {
    fn drop(&mut self) {
        let Some(guard) = self.0.take() else { return };
        let (sender, ended) = std::sync::mpsc::channel();
        // The guard itself may wait for a stopped reader, so a detached thread drops it.
        std::thread::spawn(move || {
            drop(guard);
            let _ = sender.send(());
        });
        let _ = ended.recv_timeout(END_WAIT);
    }
}

/// Starts the writing thread.
pub fn start_output() -> (NonBlocking, LogOutput) {
    let builder =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING_LINES).thread_name("log-output");
    let (lines, guard) = builder.finish(CountedOutput(std::io::stderr()));
    // A process starts its log once; dropped lines of a second log would not be counted.
    let _ = DROPPED.set(lines.error_counter());
    (lines, LogOutput(Some(guard)))
}

/// Number of lines lost since the process started.
#[must_use]
pub fn lost_lines() -> u64 {
    let dropped = DROPPED.get().map_or(0, ErrorCounter::dropped_lines);
    REFUSED.load(Relaxed) + u64::try_from(dropped).unwrap_or(u64::MAX)
}

/// A writer that counts the lines its target refuses, and never fails.
struct CountedOutput<W>(W);

impl<W: Write> Write for CountedOutput<W> {
    /// Writes one line.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if self.0.write_all(line).is_err() {
            REFUSED.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        // A line that cannot be flushed was counted when it was written.
        let _ = self.0.flush();
        Ok(())
    }
}
