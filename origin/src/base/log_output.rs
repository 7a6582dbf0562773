//! The process's log: lines go to standard error from a thread of their own. A reader that stops, a closed pipe and a full
//! disk cost lines, which are counted; they neither end nor hold up the service.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Lines that wait for standard error at most: some 500 KB. Later lines are lost until there is room.
const WAITING_LINES: usize = 2_000;

/// Lines that standard error refused.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Lines for which there was no room.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// How long the end of the process waits for lines that are not written yet.
const END_WAIT: Duration = Duration::from_secs(2);

/// The log of the process. Dropped, it writes what waits, for [`END_WAIT`] at most.
#[derive(Debug)]
pub struct LogOutput(Option<WorkerGuard>);

impl Drop for LogOutput {
    fn drop(&mut self) {
        let Some(guard) = self.0.take() else { return };
        let (sender, ended) = std::sync::mpsc::channel();
        // The guard itself may wait for a reader that stopped, so a thread that nothing waits for drops it.
        std::thread::spawn(move || {
            drop(guard);
            let _ = sender.send(());
        });
        let _ = ended.recv_timeout(END_WAIT);
    }
}

/// Starts the thread that writes.
pub fn start_output() -> (NonBlocking, LogOutput) {
    let builder =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING_LINES).thread_name("log-output");
    let (lines, guard) = builder.finish(CountedOutput(std::io::stderr()));
    // A process starts its log once; a second one would count its dropped lines apart.
    let _ = DROPPED.set(lines.error_counter());
    (lines, LogOutput(Some(guard)))
}

/// How many lines were lost since the process started.
#[must_use]
pub fn lost_lines() -> u64 {
    let dropped = DROPPED.get().map_or(0, ErrorCounter::dropped_lines);
    REFUSED.load(Relaxed) + u64::try_from(dropped).unwrap_or(u64::MAX)
}

/// A writer that counts what its target refuses, and never fails.
struct CountedOutput<W>(W);

impl<W: Write> Write for CountedOutput<W> {
    /// Writes one line, as the thread hands it over.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if self.0.write_all(line).is_err() {
            REFUSED.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        // What cannot be flushed was counted when it was written.
        let _ = self.0.flush();
        Ok(())
    }
}
