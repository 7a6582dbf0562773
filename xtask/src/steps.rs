//! Runs a program as one step, with a spinner on a terminal and plain lines elsewhere. Its output is shown only if it
//! fails.

use std::io::{BufRead as _, BufReader, IsTerminal as _, Read};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};

use crate::process::{Group, TICK};
use crate::stop::Stop;

/// Without a terminal, a long step prints its first line of progress after this time.
const FIRST: Duration = Duration::from_secs(3);
/// Interval of the lines of progress after the first.
const STILL: Duration = Duration::from_secs(30);
/// A shorter step prints no line.
const QUIET: Duration = Duration::from_secs(1);
/// Lines of a failed step that are shown: npm reports the fault at the start of its output, cargo at the end.
const HEAD: usize = 20;
const TAIL: usize = 60;

/// Runs a command to its end and returns what it wrote to standard output.
///
/// `what` names the step for the user (`building the origin`). A failure of the network is reported in one line.
pub(crate) fn run(what: &str, command: &mut Command, stop: &Stop) -> Result<String> {
    stop.check()?;
    let mut group = Group::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let log = Arc::new(Mutex::new(Log::default()));
    let readers = [
        group.child.stdout.take().map(|pipe| read(pipe, true, &log)),
        group.child.stderr.take().map(|pipe| read(pipe, false, &log)),
    ];
    let line = Line::start(what);
    let status = loop {
        if let Some(status) = group.ended()? {
            break status;
        }
        if stop.is_set() {
            line.clear();
            group.stop(Duration::from_secs(5));
            stop.check()?;
        }
        line.tick(&lock(&log).last);
        std::thread::sleep(TICK);
    };
    for reader in readers.into_iter().flatten() {
        // A reader fails only by a panic, and has no output then.
        let _ = reader.join();
    }
    let mut log = lock(&log);
    if status.success() {
        line.done();
        return Ok(std::mem::take(&mut log.stdout));
    }
    line.clear();
    Err(failure(what, command, &log, &status.to_string()))
}

fn failure(what: &str, command: &Command, log: &Log, status: &str) -> anyhow::Error {
    let program = command.get_program().display().to_string();
    let program = program.rsplit('/').next().unwrap_or_default();
    if let Some(line) = log.lines.iter().find(|line| is_network(line)) {
        return anyhow!(
            "{what}: {program} could not reach its registry: check the network and run again ({})",
            line.trim()
        );
    }
    let (head, tail) = log.lines.split_at(log.lines.len().min(HEAD));
    let left_out = tail.len().saturating_sub(TAIL);
    head.iter().for_each(|line| eprintln!("{line}"));
    if left_out > 0 {
        eprintln!("… {left_out} lines left out …");
    }
    tail.iter().skip(left_out).for_each(|line| eprintln!("{line}"));
    anyhow!("{what} failed: {program}, {status}")
}

/// Whether a line is a message of cargo, rustup, npm or apt about a missing network.
fn is_network(line: &str) -> bool {
    // "Could not resolve" alone is not enough, because esbuild prints it for an import.
    const SIGNS: [&str; 13] = [
        "ENOTFOUND",
        "EAI_AGAIN",
        "ECONNREFUSED",
        "ECONNRESET",
        "ETIMEDOUT",
        "ENETUNREACH",
        "Could not resolve host",
        "Could not resolve '",
        "Couldn't resolve host",
        "Couldn't connect to server",
        "could not download file",
        "Temporary failure resolving",
        "Failed to connect to",
    ];
    SIGNS.iter().any(|sign| line.contains(sign))
}

#[derive(Default)]
struct Log {
    /// Both streams in the order of arrival.
    lines: Vec<String>,
    stdout: String,
    last: String,
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(pipe: impl Read + Send + 'static, stdout: bool, log: &Arc<Mutex<Log>>) -> std::thread::JoinHandle<()> {
    let log = Arc::clone(log);
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut bytes = Vec::new();
        while pipe.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let mut log = lock(&log);
            if stdout {
                log.stdout.push_str(&text);
            }
            log.last = text.trim().to_owned();
            log.lines.push(text.trim_end().to_owned());
            bytes.clear();
        }
    })
}

/// The line of progress of a step.
pub(crate) struct Line {
    what: String,
    start: Instant,
    next: std::cell::Cell<Duration>,
    bar: Option<ProgressBar>,
}

impl Line {
    pub(crate) fn start(what: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg:.dim}") {
                bar.set_style(style);
            }
            bar.set_prefix(what.to_owned());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { what: what.to_owned(), start: Instant::now(), next: std::cell::Cell::new(FIRST), bar }
    }

    pub(crate) fn tick(&self, last: &str) {
        let elapsed = self.start.elapsed();
        match &self.bar {
            Some(bar) => bar.set_message(last.to_owned()),
            None if elapsed >= self.next.get() => {
                self.next.set(elapsed + STILL);
                eprintln!("{}: {} s so far, {last}", self.what, elapsed.as_secs());
            }
            None => {}
        }
    }

    /// Prints the duration of the step if it is at least [`QUIET`].
    pub(crate) fn done(&self) {
        self.clear();
        let elapsed = self.start.elapsed();
        if elapsed >= QUIET {
            eprintln!("{}: {:.1} s", self.what, elapsed.as_secs_f64());
        }
    }

    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::stop::Stop;

    /// An address without a listener, which stands for a missing network. No program gets port 1.
    const NOWHERE: &str = "http://127.0.0.1:1/";

    #[test]
    fn without_a_network_each_that_downloads_fails_in_one_line() {
        let folder = std::env::temp_dir().join(format!("causeway-no-network-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("src")).unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        let crates = "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[dependencies]\nanyhow = \"1\"\n[workspace]\n";
        put("Cargo.toml", crates);
        put("src/lib.rs", "");
        put("package.json", r#"{ "name": "x", "version": "1.0.0", "dependencies": { "esbuild": "0.28.0" } }"#);
        let sparse = format!("source.nowhere.registry='sparse+{NOWHERE}'");
        let mut npm = Command::new("npm");
        npm.args(["install", "--loglevel=error"])
            .env("npm_config_registry", NOWHERE)
            .env("npm_config_fetch_retries", "0");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["fetch", "--config", "source.crates-io.replace-with='nowhere'", "--config", &sparse]);
        cargo.env("CARGO_NET_RETRY", "0").env_remove("CARGO_NET_OFFLINE");
        let mut rustup = Command::new("rustup");
        rustup.args(["toolchain", "install", "1.95.0"]).env("RUSTUP_DIST_SERVER", NOWHERE.trim_end_matches('/'));
        // Each program has an empty cache.
        let homes = ["npm_config_cache", "CARGO_HOME", "RUSTUP_HOME"];
        for (mut command, home) in [npm, cargo, rustup].into_iter().zip(homes) {
            command.current_dir(&folder).env(home, folder.join(home)).env("NO_PROXY", "127.0.0.1");
            let program = command.get_program().to_string_lossy().rsplit('/').next().unwrap().to_owned();
            let error = run("installing", &mut command, &Stop::default()).unwrap_err().to_string();
            let begins =
                format!("installing: {program} could not reach its registry: check the network and run again (");
            assert!(error.starts_with(&begins) && error.lines().count() == 1, "{error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_fails_otherwise_is_shown_and_named() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo Connected; exit 3"]);
        let error = run("a step", &mut command, &Stop::default()).unwrap_err().to_string();
        assert_eq!(error, "a step failed: sh, exit status: 3");
    }
}
