//! `cargo xtask test` and `lint`: the checks of the project, in the order in which a fault is cheapest to find.
//!
//! | tier | command | checks |
//! |---|---|---|
//! | quick | `cargo xtask test quick` | formatting, native clippy, and the tests of `shared`, `edge` and the library of `origin` |
//! | standard | `cargo xtask test` | all steps, their long cases in a short form |
//! | full | `cargo xtask test full` | all steps, every case in its long form; the benches' workspace too |
//!
//! A command may name steps: `cargo xtask test lint unit`, or `cargo xtask test full e2e` for one step in its long
//! form.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::process::{Group, TICK};
use crate::project::Project;
use crate::stop::Stop;
use crate::{edge_build, lint, npm, origin_build, sim, steps, tools};

/// Variable that selects the long form of a test's case.
const LONG_FORM: (&str, &str) = ("CAUSEWAY_LONG", "1");
/// Variable of a user that leaves out the tests that need Python or Spark.
const NO_SPARK: &str = "CAUSEWAY_NO_SPARK";
/// Variable that lets these tests fail where they could not run.
const DEMAND_SPARK: (&str, &str) = ("CAUSEWAY_DEMAND_SPARK", "1");

/// How much a run checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TestTier {
    /// Before a commit: minutes.
    Quick,
    /// What continuous integration runs.
    Standard,
    /// By hand before a release: hours.
    Full,
}

/// A step of `cargo xtask test`, in the order in which the steps run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestStep {
    Lint,
    Unit,
    Sim,
    Platform,
    Deploy,
    E2e,
    Browser,
}

impl TestStep {
    const ALL: [Self; 7] = [Self::Lint, Self::Unit, Self::Sim, Self::Platform, Self::Deploy, Self::E2e, Self::Browser];
    /// Steps of the quick tier where none is named.
    const QUICK: [Self; 2] = [Self::Lint, Self::Unit];

    fn name(self) -> &'static str {
        match self {
            Self::Lint => "lint",
            Self::Unit => "unit",
            Self::Sim => "sim",
            Self::Platform => "platform",
            Self::Deploy => "deploy",
            Self::E2e => "e2e",
            Self::Browser => "browser",
        }
    }

    /// The content of the step, for the help and the summary.
    fn content(self) -> &'static str {
        match self {
            Self::Lint => {
                "formatting, clippy (native and wasm32), documentation links, licences and sources of dependencies"
            }
            Self::Unit => "unit, property, golden and fuzz tests",
            Self::Sim => "simulated worlds, and the planted bugs that they must show",
            Self::Platform => "the bundled worker on a hostile platform, in Node",
            Self::Deploy => "what `wrangler deploy` would upload, as a dry run",
            Self::E2e => "end to end: real processes over HTTP",
            Self::Browser => "the demonstration page and the page tag in Chromium",
        }
    }

    fn run(self, project: &Project, tier: TestTier, stop: &Stop) -> Result<StepOutcome> {
        match self {
            Self::Lint => lint::run(project, tier, stop),
            Self::Unit => unit(project, tier, stop),
            Self::Sim => sim::test(project, tier, stop).map(|()| StepOutcome::Passed),
            Self::Platform => platform(project, tier, stop),
            Self::Deploy => deploy(project, stop),
            Self::E2e => e2e(project, tier, stop),
            Self::Browser => browser(project, tier, stop),
        }
    }
}

/// An argument of `cargo xtask test`: a tier, or a step to run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestArgument {
    Tier(TestTier),
    Step(TestStep),
}

impl ValueEnum for TestArgument {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [TestArgument; 9] = [
            TestArgument::Tier(TestTier::Quick),
            TestArgument::Tier(TestTier::Full),
            TestArgument::Step(TestStep::Lint),
            TestArgument::Step(TestStep::Unit),
            TestArgument::Step(TestStep::Sim),
            TestArgument::Step(TestStep::Platform),
            TestArgument::Step(TestStep::Deploy),
            TestArgument::Step(TestStep::E2e),
            TestArgument::Step(TestStep::Browser),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Tier(TestTier::Quick) => {
                Some(PossibleValue::new("quick").help("lint and unit alone, without wasm32 and long cases"))
            }
            // The tier without a name.
            Self::Tier(TestTier::Standard) => None,
            Self::Tier(TestTier::Full) => {
                Some(PossibleValue::new("full").help("every case in its long form, and the benches' workspace"))
            }
            Self::Step(step) => Some(PossibleValue::new(step.name()).help(step.content())),
        }
    }
}

/// The result of a step that did not fail; a failure is an error.
pub(crate) enum StepOutcome {
    Passed,
    /// Passed, except for the named part, which could not run.
    PassedWithout(String),
    /// The step could not run, for the named reason.
    Skipped(String),
}

/// Runs the wanted steps up to the first that fails, and prints a summary.
///
/// # Errors
/// The error of the step that failed; arguments that name two tiers; a machine without a C compiler.
pub(crate) fn run(project: &Project, arguments: &[TestArgument], stop: &Stop) -> Result<()> {
    let (tier, wanted) = selection(arguments)?;
    tools::check_machine()?;
    let mut summary = Vec::new();
    let mut failed = None;
    for step in wanted {
        let title = format!("{}: {}", step.name(), step.content());
        println!("── {title}");
        let start = Instant::now();
        let outcome = step.run(project, tier, stop);
        let seconds = start.elapsed().as_secs_f64();
        let (verdict, error) = match outcome {
            Ok(StepOutcome::Passed) => ("passed".to_owned(), None),
            Ok(StepOutcome::PassedWithout(part)) => (format!("passed without {part}"), None),
            Ok(StepOutcome::Skipped(reason)) => (format!("skipped: {reason}"), None),
            Err(error) => ("FAILED".to_owned(), Some(error)),
        };
        println!("   {verdict}, {seconds:.1} s");
        summary.push(format!("{seconds:>8.1} s  {verdict:<7}  {title}"));
        if let Some(error) = error {
            failed = Some(error.context(format!("step {title}")));
            break;
        }
    }
    println!("── summary");
    summary.iter().for_each(|line| println!("{line}"));
    failed.map_or(Ok(()), Err)
}

/// The tier and the steps that arguments select: without a step all steps of the tier.
fn selection(arguments: &[TestArgument]) -> Result<(TestTier, Vec<TestStep>)> {
    let mut tier = None;
    let mut named = Vec::new();
    for argument in arguments {
        match *argument {
            TestArgument::Step(step) => named.push(step),
            TestArgument::Tier(chosen) => {
                ensure!(tier.is_none_or(|tier| tier == chosen), "expected one tier: quick or full");
                tier = Some(chosen);
            }
        }
    }
    let tier = tier.unwrap_or(TestTier::Standard);
    let steps = match tier {
        _ if !named.is_empty() => TestStep::ALL.into_iter().filter(|step| named.contains(step)).collect(),
        TestTier::Quick => TestStep::QUICK.to_vec(),
        TestTier::Standard | TestTier::Full => TestStep::ALL.to_vec(),
    };
    Ok((tier, steps))
}

/// The environment of a tier's tests.
fn tier_env(tier: TestTier) -> Option<(&'static str, &'static str)> {
    (tier == TestTier::Full).then_some(LONG_FORM)
}

/// Tests of the quick tier: the domain and the edge with all of their tests, the origin with those of its library,
/// which start no process.
const QUICK_TESTS: [&str; 14] = [
    "test",
    "--package",
    "causeway-shared",
    "--package",
    "causeway-edge",
    "--package",
    "causeway-origin",
    "--lib",
    "--test",
    "shared",
    "--test",
    "fuzz",
    "--test",
    "edge",
];

/// The tests that need Python or Spark must run where the machine has both, unless the user left them out.
fn unit(project: &Project, tier: TestTier, stop: &Stop) -> Result<StepOutcome> {
    if tier == TestTier::Quick {
        shown(project.cargo().args(QUICK_TESTS), stop)?;
        return Ok(StepOutcome::Passed);
    }
    let missing = if std::env::var_os(NO_SPARK).is_some() {
        Some(format!("{NO_SPARK} is set"))
    } else {
        ["java", "python3"]
            .iter()
            .any(|name| tools::find(name).is_none())
            .then(|| "it needs Java and Python".to_owned())
    };
    let mut tests = project.cargo();
    tests.arg("test").envs(tier_env(tier));
    match &missing {
        Some(_) => tests.env(NO_SPARK, "1"),
        None => tests.envs([DEMAND_SPARK]),
    };
    shown(&mut tests, stop)?;
    if tier == TestTier::Full {
        shown(project.bench_cargo().args(["test", "--workspace"]), stop)?;
    }
    Ok(missing.map_or(StepOutcome::Passed, |reason| StepOutcome::PassedWithout(format!("Spark: {reason}"))))
}

fn platform(project: &Project, tier: TestTier, stop: &Stop) -> Result<StepOutcome> {
    let mut env = built_edge(project, stop)?;
    env.push(("CAUSEWAY_EDGE_BUNDLE", edge_build::bundle(project, stop)?.into()));
    node_tests(project, "tests/platform", env, tier, stop)
}

fn deploy(project: &Project, stop: &Stop) -> Result<StepOutcome> {
    built_edge(project, stop)?;
    edge_build::bundle(project, stop)?;
    Ok(StepOutcome::Passed)
}

fn e2e(project: &Project, tier: TestTier, stop: &Stop) -> Result<StepOutcome> {
    let env = built(project, stop)?;
    shown(project.cargo().args(["test", "--package", "causeway-tests"]).envs(env).envs(tier_env(tier)), stop)?;
    Ok(StepOutcome::Passed)
}

fn browser(project: &Project, tier: TestTier, stop: &Stop) -> Result<StepOutcome> {
    let folder = "tests/browser";
    if node_test_files(&project.root.join(folder))?.is_empty() {
        return Ok(StepOutcome::Skipped(format!("no *.test.mjs in {folder}")));
    }
    let chromium = match chromium(project, stop)? {
        Ok(chromium) => chromium,
        Err(reason) => return Ok(StepOutcome::Skipped(reason)),
    };
    let mut env = built(project, stop)?;
    env.push(("CAUSEWAY_CHROMIUM", chromium.into()));
    node_tests(project, folder, env, tier, stop)
}
/// Builds every program that an end-to-end test starts. Returns the variables that name them; see the crate's
/// documentation.
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

/// Runs a folder's tests in Node. Its runner takes no folder (since 22), so that the files are named.
fn node_tests(
    project: &Project,
    folder: &str,
    env: Vec<(&'static str, OsString)>,
    tier: TestTier,
    stop: &Stop,
) -> Result<StepOutcome> {
    let files = node_test_files(&project.root.join(folder))?;
    if files.is_empty() {
        return Ok(StepOutcome::Skipped(format!("no *.test.mjs in {folder}")));
    }
    let mut node = project.command(npm::node(project)?);
    shown(node.arg("--test").args(files).envs(env).envs(tier_env(tier)), stop)?;
    Ok(StepOutcome::Passed)
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

/// Chromium's path, installed from Debian where that is possible; otherwise the reason why there is none.
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

/// Runs a command that shows its own output.
///
/// # Errors
/// A command that fails.
pub(crate) fn shown(command: &mut Command, stop: &Stop) -> Result<()> {
    let status = watched(command, stop)?;
    if status.success() {
        return Ok(());
    }
    bail!("{} failed, {status}", title(command));
}

/// Runs a command to its end with its output as it is. Returns its exit status.
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn arguments_select_a_tier_and_its_steps_in_order() {
        let of = |names: &[&str]| {
            let arguments = names.iter().map(|name| TestArgument::from_str(name, false).unwrap()).collect::<Vec<_>>();
            selection(&arguments)
        };
        assert_eq!(of(&[]).unwrap(), (TestTier::Standard, TestStep::ALL.to_vec()));
        assert_eq!(of(&["quick"]).unwrap(), (TestTier::Quick, vec![TestStep::Lint, TestStep::Unit]));
        assert_eq!(of(&["unit", "lint"]).unwrap(), (TestTier::Standard, vec![TestStep::Lint, TestStep::Unit]));
        assert_eq!(of(&["full", "e2e"]).unwrap(), (TestTier::Full, vec![TestStep::E2e]));
        assert!(of(&["quick", "full"]).is_err());
    }
}
