//! CPU time of all threads of a process, from the kernel.

use anyhow::{Context as _, Result};

/// Microseconds of a tick of /proc. Linux reports 100 ticks per second to every program.
const TICK_US: u64 = 10_000;

/// A process by its id.
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
            .with_context(|| format!("cannot read {path}: CPU time can be measured on Linux only"))?;
        ticks(&stat).map(|ticks| ticks * TICK_US).with_context(|| format!("{path} has an unknown form"))
    }
}

/// Sum of fields 14 and 15 of proc(5). The second field is a name with any characters, so fields are counted from its
/// end.
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
