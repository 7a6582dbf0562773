//! `cargo xtask test` and `lint`: every check there is, in the order in which a fault is cheapest to find.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::process::{Group, TICK};
use crate::project::Project;
use crate::stop::Stop;
use crate::{edge_build, npm, origin_build, sim, steps, tools};

/// The steps, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// Formatting; clippy, native and for wasm32, warnings refused.
    Lint,
    /// Unit, property and golden tests of every crate but `tests/`.
    Unit,
    /// Simulated worlds, and the planted bugs that they must show.
    Sim,
    /// The bundled worker on a hostile platform, in Node.
    Platform,
    /// What `wrangler deploy` would upload.
    Deploy,
    /// End to end: real processes over real HTTP.
    E2e,
    /// The demo page and the page tag, in Chromium.
    Browser,
}

impl Name {
    const ALL: [Self; 7] = [Self::Lint, Self::Unit, Self::Sim, Self::Platform, Self::Deploy, Self::E2e, Self::Browser];

    fn title(self) -> &'static str {
        match self {
            Self::Lint => "lint: formatting and clippy, native and wasm32",
            Self::Unit => "unit: unit, property and golden tests",
            Self::Sim => "sim: simulated worlds, and planted bugs",
            Self::Platform => "platform: the worker on a hostile platform",
            Self::Deploy => "deploy: wrangler deploy --dry-run",
            Self::E2e => "e2e: end to end",
            Self::Browser => "browser: the demo page and the page tag in Chromium",
        }
    }

    fn run(self, project: &Project, stop: &Stop) -> Result<Outcome> {
        match self {
            Self::Lint => lint(project, stop),
            Self::Unit => unit(project, stop),
            Self::Sim => sim(project, stop),
            Self::Platform => platform(project, stop),
            Self::Deploy => deploy(project, stop),
            Self::E2e => e2e(project, stop),
            Self::Browser => browser(project, stop),
        }
    }
}

/// How a step ended; failing is an error.
enum Outcome {
    Passed,
    /// But for a part, which is named.
    Without(String),
    Skipped(String),
}

/// Runs the steps named, or all, up to the first that fails, and sums up.
pub(crate) fn run(project: &Project, wanted: &[Name], stop: &Stop) -> Result<()> {
    tools::check_machine()?;
    let mut summary = Vec::new();
    let mut failed = None;
    for name in Name::ALL.into_iter().filter(|name| wanted.is_empty() || wanted.contains(name)) {
        println!("── {}", name.title());
        let start = Instant::now();
        let outcome = name.run(project, stop);
        let seconds = start.elapsed().as_secs_f64();
        let (verdict, error) = match outcome {
            Ok(Outcome::Passed) => ("passed".to_owned(), None),
            Ok(Outcome::Without(what)) => (format!("passed without {what}"), None),
            Ok(Outcome::Skipped(why)) => (format!("skipped: {why}"), None),
            Err(error) => ("FAILED".to_owned(), Some(error)),
        };
        println!("   {verdict}, {seconds:.1} s");
        summary.push(format!("{seconds:>8.1} s  {verdict:<7}  {}", name.title()));
        if let Some(error) = error {
            failed = Some(error.context(format!("step {}", name.title())));
            break;
        }
    }
    println!("── summary");
    summary.iter().for_each(|line| println!("{line}"));
    failed.map_or(Ok(()), Err)
}

fn lint(project: &Project, stop: &Stop) -> Result<Outcome> {
    tools::ensure_lint_tools(project, stop)?;
    tools::ensure_wasm_target(project, stop)?;
    shown(project.cargo().args(["fmt", "--all", "--check"]), stop)?;
    shown(project.cargo().args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]), stop)?;
    let wasm = ["--target", "wasm32-unknown-unknown", "--", "-D", "warnings"];
    let crates = ["clippy", "--quiet", "--package", "causeway-shared", "--package", "causeway-edge"];
    shown(project.cargo().args(crates).args(wasm), stop)?;
    Ok(Outcome::Passed)
}

/// One test asks Spark, and fails where it cannot unless it is told to leave it.
fn unit(project: &Project, stop: &Stop) -> Result<Outcome> {
    const LEAVE: &str = "CAUSEWAY_NO_SPARK";
    let why = if std::env::var_os(LEAVE).is_some() {
        Some("it is set that it be left")
    } else {
        ["java", "python3"].iter().any(|name| tools::find(name).is_none()).then_some("it needs Java and Python")
    };
    let mut tests = project.cargo();
    tests.args(["test", "--workspace", "--exclude", "causeway-tests"]).envs(why.map(|_| (LEAVE, "1")));
    shown(&mut tests, stop)?;
    Ok(why.map_or(Outcome::Passed, |why| Outcome::Without(format!("Spark: {why}"))))
}

fn sim(project: &Project, stop: &Stop) -> Result<Outcome> {
    sim::tested(project, stop)?;
    Ok(Outcome::Passed)
}

fn platform(project: &Project, stop: &Stop) -> Result<Outcome> {
    let mut env = built_edge(project, stop)?;
    env.push(("CAUSEWAY_EDGE_BUNDLE", edge_build::bundle(project, stop)?.into()));
    node_tests(project, "tests/platform", env, stop)
}

fn deploy(project: &Project, stop: &Stop) -> Result<Outcome> {
    built_edge(project, stop)?;
    edge_build::bundle(project, stop)?;
    Ok(Outcome::Passed)
}

fn e2e(project: &Project, stop: &Stop) -> Result<Outcome> {
    let env = built(project, stop)?;
    shown(project.cargo().args(["test", "--package", "causeway-tests"]).envs(env), stop)?;
    Ok(Outcome::Passed)
}

fn browser(project: &Project, stop: &Stop) -> Result<Outcome> {
    let folder = "tests/browser";
    if node_test_files(&project.root.join(folder))?.is_empty() {
        return Ok(Outcome::Skipped(format!("no *.test.mjs in {folder}")));
    }
    let chromium = match chromium(project, stop)? {
        Ok(chromium) => chromium,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let mut env = built(project, stop)?;
    env.push(("CAUSEWAY_CHROMIUM", chromium.into()));
    node_tests(project, folder, env, stop)
}

/// Builds everything that a test from outside starts, and says where it is; see the crate's documentation.
pub(crate) fn built(project: &Project, stop: &Stop) -> Result<Vec<(&'static str, OsString)>> {
    let mut env = built_edge(project, stop)?;
    env.push(("CAUSEWAY_ORIGIN_BIN", origin_build::build(project, stop)?.into()));
    env.push(("CAUSEWAY_EDGE_BUNDLE", edge_build::bundle(project, stop)?.into()));
    env.push(("CAUSEWAY_XTASK", std::env::current_exe()?.into()));
    Ok(env)
}

fn built_edge(project: &Project, stop: &Stop) -> Result<Vec<(&'static str, OsString)>> {
    tools::ensure_all(project, stop)?;
    let folder = edge_build::build(project, stop)?;
    let mut env = tools::env(project)?;
    env.push(("CAUSEWAY_EDGE_BUILD", folder.into()));
    Ok(env)
}

/// Node's runner takes no folder (since 22), so the files are named.
fn node_tests(project: &Project, folder: &str, env: Vec<(&'static str, OsString)>, stop: &Stop) -> Result<Outcome> {
    let files = node_test_files(&project.root.join(folder))?;
    if files.is_empty() {
        return Ok(Outcome::Skipped(format!("no *.test.mjs in {folder}")));
    }
    shown(project.command(npm::node(project)?).arg("--test").args(files).envs(env), stop)?;
    Ok(Outcome::Passed)
}

fn node_test_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".test.mjs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Chromium's path, installed from Debian where that can be done; else why there is none.
fn chromium(project: &Project, stop: &Stop) -> Result<Result<PathBuf, String>> {
    let find = || {
        let own = std::env::var_os("CAUSEWAY_CHROMIUM").map(PathBuf::from);
        own.or_else(|| ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(tools::find))
    };
    if let Some(found) = find() {
        return Ok(Ok(found));
    }
    if tools::find("apt-get").is_none() {
        return Ok(Err("no Chromium, and no apt-get to install it with".to_owned()));
    }
    if !rustix::process::geteuid().is_root() {
        return Ok(Err("no Chromium, and installing it needs root: apt-get install chromium".to_owned()));
    }
    let apt = |arguments: &[&str]| {
        let mut command = project.command("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").arg("-q").args(arguments);
        command
    };
    steps::run("reading Debian's package lists", &mut apt(&["update"]), stop)?;
    steps::run("installing Chromium", &mut apt(&["install", "-y", "--no-install-recommends", "chromium"]), stop)?;
    find().map(Ok).context("apt-get installed chromium, but it is not on PATH")
}

/// Runs a command with its output shown as it comes; it must succeed.
pub(crate) fn shown(command: &mut Command, stop: &Stop) -> Result<()> {
    let status = watched(command, stop)?;
    if status.success() {
        return Ok(());
    }
    bail!("{} failed, {status}", title(command));
}

/// Runs a command to its end, with its output where it goes, and says how it ended.
pub(crate) fn watched(command: &mut Command, stop: &Stop) -> Result<ExitStatus> {
    stop.check()?;
    let mut group = Group::start(command.stdin(Stdio::null()))?;
    loop {
        if let Some(status) = group.ended()? {
            return Ok(status);
        }
        if stop.is_set() {
            group.stop(Duration::from_secs(20));
            stop.check()?;
        }
        std::thread::sleep(TICK);
    }
}

/// `cargo clippy --workspace`, without the folders.
fn title(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let arguments = command.get_args().take(3).map(|argument| argument.display().to_string());
    std::iter::once(program.display().to_string()).chain(arguments).collect::<Vec<_>>().join(" ")
}
