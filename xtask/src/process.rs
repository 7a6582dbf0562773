//! Child processes, each in a process group of its own, so that stopping one leaves no grandchild behind.
//!
//! npm, wrangler and cargo all start further programs; a signal to the child alone would orphan them.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};

/// How often a waiting loop looks at its child and at the stop flag.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// A running process group; dropped, it is stopped.
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

    /// The leader's process id, which is the group's as well.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How the leader ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Asks the whole group to end, waits for the grace, then kills what is left.
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
        // After SIGKILL the leader can only be reaped.
        let _ = self.child.wait().map(|status| self.ended = Some(status));
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.id()).ok().and_then(Pid::from_raw)
    }

    /// To a group that is gone there is nothing to say, so a failure says nothing new.
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
