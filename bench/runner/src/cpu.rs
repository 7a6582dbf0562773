//! CPU time of a process, all threads, as the kernel counts it.

use anyhow::{Context as _, Result};

/// Microseconds in one of the ticks that /proc counts in: Linux shows 100 a second to every program.
const TICK_US: u64 = 10_000;

/// A process whose time is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu(u32);

impl Cpu {
    pub(crate) fn of(process: u32) -> Self {
        Self(process)
    }

    pub(crate) fn own() -> Self {
        Self(std::process::id())
    }

    /// User and system time so far, in microseconds.
    pub(crate) fn micros(self) -> Result<u64> {
        let path = format!("/proc/{}/stat", self.0);
        let stat = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {path}: CPU time is measured on Linux alone"))?;
        ticks(&stat).map(|ticks| ticks * TICK_US).with_context(|| format!("{path} is not of the form known"))
    }
}

/// Fields 14 and 15 of proc(5); the second field is a name that may hold anything, so they are counted from its end.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::ticks;

    #[test]
    fn a_name_with_blanks_and_brackets_does_no_harm() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 100 0 0";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("7 (a) S 1"), None);
    }
}
