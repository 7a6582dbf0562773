//! Child processes, each in its own process group.
//!
//! npm, wrangler and cargo start further programs; a signal to the group reaches them too.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};

/// Interval at which a waiting loop checks its child and the stop flag.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// A running process group; a drop stops it.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) child: Child,
    ended: Option<ExitStatus>,
}

impl Group {
    /// Starts the command as the leader of a new group.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { child, ended: None })
    }

    /// The process id of the leader, which is also the id of the group.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status of the leader; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Sends SIGTERM to the group, waits at most `grace`, then kills the remaining processes.
    pub(crate) fn stop(&mut self, grace: Duration) {
        self.signal(Signal::TERM);
        let until = Instant::now() + grace;
        while Instant::now() < until {
            let leader_gone = !matches!(self.ended(), Ok(None));
            if leader_gone && !self.has_members() {
                return;
            }
            std::thread::sleep(TICK);
        }
        self.signal(Signal::KILL);
        // The wait after SIGKILL only reaps the leader.
        let _ = self.child.wait().map(|status| self.ended = Some(status));
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.id()).ok().and_then(Pid::from_raw)
    }

    /// Signals the group. An error is ignored: the group has ended.
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = kill_process_group(pid, signal);
        }
    }

    fn has_members(&self) -> bool {
        self.pid().is_some_and(|pid| rustix::process::test_kill_process_group(pid).is_ok())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.has_members() {
            self.stop(Duration::from_secs(5));
        }
    }
}
