//! The tools that come from Rust's side: compiler parts by rustup, programs by `cargo install` into `.tools/`.
//!
//! Every function looks first and installs only what is missing or of another version.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, anyhow, bail};

use crate::project::Project;
use crate::stop::Stop;
use crate::{npm, steps};

const WASM_TARGET: &str = "wasm32-unknown-unknown";
/// The release of worker-build that goes with the `worker` crate of the benches' peers.
const WORKER_BUILD: &str = "0.8.7";

/// What no command of ours can install.
pub(crate) fn check_machine() -> Result<()> {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    // Of several words the first may be a wrapper of the compiler.
    let words = compiler.to_string_lossy();
    if words.split_whitespace().any(|word| !word.starts_with('-') && find(word).is_none()) {
        bail!(
            "no C compiler: `{}` is not on PATH; install one (Debian: apt-get install build-essential)",
            compiler.display()
        );
    }
    Ok(())
}

/// Everything that `dev` and `test` need, as far as it is missing.
pub(crate) fn ensure_all(project: &Project, stop: &Stop) -> Result<()> {
    ensure_wasm_target(project, stop)?;
    npm::ensure(project, stop)?;
    ensure_wasm_bindgen(project, stop)
}

pub(crate) fn ensure_wasm_target(project: &Project, stop: &Stop) -> Result<()> {
    let sysroot = output(project.command("rustc").args(["--print", "sysroot"]))
        .ok_or_else(|| anyhow!("cannot run rustc: install Rust with rustup"))?;
    if Path::new(&sysroot).join("lib/rustlib").join(WASM_TARGET).is_dir() {
        return Ok(());
    }
    rustup(project, "installing the wasm target", &["target", "add", WASM_TARGET], stop)
}

/// `rustfmt` and `clippy`, which a minimal toolchain lacks.
pub(crate) fn ensure_lint_tools(project: &Project, stop: &Stop) -> Result<()> {
    let there = |tool: &str| output(project.cargo().args([tool, "--version"])).is_some();
    if there("fmt") && there("clippy") {
        return Ok(());
    }
    rustup(project, "installing rustfmt and clippy", &["component", "add", "rustfmt", "clippy"], stop)
}

fn rustup(project: &Project, what: &str, arguments: &[&str], stop: &Stop) -> Result<()> {
    if find("rustup").is_none() {
        bail!("{what}: rustup is not on PATH; install Rust with rustup, or run: rustup {}", arguments.join(" "));
    }
    steps::run(what, project.command("rustup").args(arguments), stop).map(drop)
}

/// The binary and the crate must be of one version: their interface changes with every release.
fn ensure_wasm_bindgen(project: &Project, stop: &Stop) -> Result<()> {
    let version = project.locked_version("wasm-bindgen")?;
    ensure_installed(project, "wasm-bindgen-cli", "wasm-bindgen", &version, stop)
}

/// For the benches' peers alone: the edge itself is built without it.
pub(crate) fn ensure_worker_build(project: &Project, stop: &Stop) -> Result<()> {
    ensure_installed(project, "worker-build", "worker-build", WORKER_BUILD, stop)
}

fn ensure_installed(project: &Project, package: &str, bin: &str, version: &str, stop: &Stop) -> Result<()> {
    if installed(project, package, version) && project.tool(bin).is_file() {
        return Ok(());
    }
    let mut command = project.cargo();
    command
        .args(["install", package, "--bin", bin, "--force"])
        .args(["--version", &format!("={version}")])
        .arg("--root")
        .arg(project.root.join(".tools"))
        // What is being tested must not be rebuilt in the same folder, nor wait for its lock.
        .arg("--target-dir")
        .arg(project.target.join("tools"));
    steps::run(&format!("installing {package} {version} (minutes, once)"), &mut command, stop).map(drop)
}

/// Cargo's own record of what it installed; asking each program would start it on every run.
fn installed(project: &Project, package: &str, version: &str) -> bool {
    let record = std::fs::read_to_string(project.root.join(".tools/.crates.toml")).unwrap_or_default();
    record.contains(&format!("\"{package} {version} "))
}

/// What child programs find in their environment: the tools, with `node_modules/.bin` first on `PATH`.
pub(crate) fn env(project: &Project) -> Result<Vec<(&'static str, OsString)>> {
    Ok(vec![
        ("PATH", npm::path(project)?),
        ("WASM_BINDGEN_BIN", project.tool("wasm-bindgen").into()),
        ("WASM_OPT_BIN", project.npm(".bin/wasm-opt").into()),
        ("ESBUILD_BIN", npm::esbuild(project).into()),
        ("CAUSEWAY_ROOT", project.root.clone().into()),
        ("CAUSEWAY_NODE", npm::node(project)?.into()),
        ("CAUSEWAY_WORKERD", npm::workerd(project).into()),
        ("CAUSEWAY_WRANGLER", npm::wrangler(project).into()),
        // Wrangler reports usage by default, and asks a server for a placeholder of `request.cf`.
        ("WRANGLER_SEND_METRICS", "false".into()),
        ("WRANGLER_SEND_ERROR_REPORTS", "false".into()),
        ("CLOUDFLARE_CF_FETCH_ENABLED", "false".into()),
        // The build command of wrangler.toml has nothing to do: it would wait for whichever cargo builds here.
        ("CAUSEWAY_EDGE_IS_BUILT", "1".into()),
    ])
}

/// The program of that name on `PATH`, or the path itself where it is one.
pub(crate) fn find(program: impl AsRef<Path>) -> Option<PathBuf> {
    let program = program.as_ref();
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// What a command printed, trimmed; `None` when it cannot be started or fails.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
