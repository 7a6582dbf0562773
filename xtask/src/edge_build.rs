//! Builds the edge's module (cargo, wasm-bindgen, wasm-opt), the page tag that it serves, and the bundle that wrangler
//! uploads.
//!
//! The steps after cargo are skipped if cargo's output is unchanged.

use std::fs::{File, TryLockError};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::project::Project;
use crate::stop::Stop;
use crate::{npm, steps, tools};

/// The features that the Rust compiler uses by default on this target; wasm-opt does not enable all of them by itself.
const FEATURES: [&str; 7] = [
    "--enable-bulk-memory",
    "--enable-multivalue",
    "--enable-mutable-globals",
    "--enable-nontrapping-float-to-int",
    "--enable-reference-types",
    "--enable-sign-ext",
    "--enable-simd",
];
const OPTIMISE: &str = "-O2";
const STAMP: &str = "stamp";
/// Interval between two attempts to take the lock of another build.
const LOOK: Duration = Duration::from_millis(200);

/// Returns the folder that holds `engine.js`, `engine_bg.wasm` and the page tag.
pub(crate) fn build(project: &Project, stop: &Stop) -> Result<PathBuf> {
    let compiled = compile(project, project.cargo(), "causeway-edge", "building the edge", stop)?;
    let wasm = std::fs::read(&compiled).with_context(|| format!("cargo left no {}", compiled.display()))?;
    let stamp = stamp(project, &wasm)?;
    let folder = project.edge_build();
    let _alone = alone(project, stop)?;
    tag(project, &folder, stop)?;
    if std::fs::read_to_string(folder.join(STAMP)).is_ok_and(|made_from| made_from == stamp) {
        return Ok(folder);
    }
    let fresh = folder.with_extension("new");
    remove(&fresh)?;
    bind(project, &compiled, &fresh, stop)?;
    optimise(project, &fresh, stop)?;
    std::fs::write(fresh.join(STAMP), stamp)?;
    // A running `wrangler dev` watches these files: each is replaced as a whole, the module before its glue code.
    std::fs::create_dir_all(&folder)?;
    for name in ["snippets", "engine_bg.wasm", "engine.js", STAMP] {
        let to = folder.join(name);
        if to.is_dir() {
            remove(&to)?;
        }
        std::fs::rename(fresh.join(name), to).with_context(|| format!("wasm-bindgen left no {name}"))?;
    }
    remove(&fresh)?;
    Ok(folder)
}

/// Takes the lock of the build folder; waits while another build holds it.
fn alone(project: &Project, stop: &Stop) -> Result<File> {
    let lock = File::create(project.target.join("edge-build.lock"))?;
    while let Err(TryLockError::WouldBlock) = lock.try_lock() {
        stop.check()?;
        std::thread::sleep(LOOK);
    }
    Ok(lock)
}

/// Bundles the page tag into one script, as a text in a module, because the worker serves it and does not run it.
fn tag(project: &Project, folder: &Path, stop: &Stop) -> Result<()> {
    let mut command = project.command(npm::esbuild(project));
    command.args([
        "edge/tag/script.js",
        "--bundle",
        "--minify",
        "--format=iife",
        "--target=es2022",
        "--log-level=warning",
    ]);
    let script = steps::run("bundling the page tag", &mut command, stop)?;
    let module = format!("export default {};\n", serde_json::to_string(&script)?);
    let path = folder.join("causeway.mjs");
    // An unchanged file is not written, because a running `wrangler dev` restarts after each write.
    if std::fs::read_to_string(&path).is_ok_and(|there| there == module) {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    std::fs::write(&path, module).with_context(|| format!("cannot write {}", path.display()))
}

/// A text that is equal for equal input and tools, whose output is then equal.
fn stamp(project: &Project, wasm: &[u8]) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    wasm.hash(&mut hasher);
    let lock = project.root.join("package-lock.json");
    std::fs::read(&lock).with_context(|| format!("cannot read {}", lock.display()))?.hash(&mut hasher);
    let bindgen = project.locked_version("wasm-bindgen")?;
    (FEATURES, OPTIMISE).hash(&mut hasher);
    Ok(format!("wasm-bindgen {bindgen}\n{} bytes, {:016x}\n", wasm.len(), hasher.finish()))
}

/// Compiles a crate of the workspace that `cargo` runs in to a WebAssembly module. Returns the path of the module. The
/// manifest does not name the crate type, so that native builds of the crate produce no shared library.
fn compile(project: &Project, mut cargo: Command, package: &str, what: &str, stop: &Stop) -> Result<PathBuf> {
    cargo.args(["rustc", "--package", package, "--lib", "--crate-type", "cdylib"]);
    cargo.args(["--target", "wasm32-unknown-unknown", "--profile", "edge"]);
    steps::run(what, &mut cargo, stop)?;
    let name = package.replace('-', "_");
    Ok(project.target.join(format!("wasm32-unknown-unknown/edge/{name}.wasm")))
}

fn bind(project: &Project, compiled: &Path, out: &Path, stop: &Stop) -> Result<()> {
    let mut command = project.command(project.tool("wasm-bindgen"));
    // The worker's entry calls the reset function after a trap.
    command.args(["--target", "web", "--no-typescript", "--experimental-reset-state-function"]);
    command.args(["--out-name", "engine", "--out-dir"]).arg(out).arg(compiled);
    steps::run("wasm-bindgen", &mut command, stop).map(drop)
}

fn optimise(project: &Project, folder: &Path, stop: &Stop) -> Result<()> {
    let module = folder.join("engine_bg.wasm");
    let mut command = project.command(project.npm(".bin/wasm-opt"));
    command.envs(tools::env(project)?).arg(OPTIMISE).args(FEATURES).arg(&module).arg("--output").arg(&module);
    steps::run("wasm-opt", &mut command, stop).map(drop)
}

/// Compiles the module of the benches like the edge's, into a folder with `engine.js` and `engine_bg.wasm`.
pub(crate) fn bench(project: &Project, stop: &Stop) -> Result<PathBuf> {
    let compiled = compile(project, project.bench_cargo(), "causeway-bench-wasm", "building the bench's module", stop)?;
    let out = project.target.join("bench-wasm");
    bind(project, &compiled, &out, stop)?;
    optimise(project, &out, stop)?;
    Ok(out)
}

/// Bundles the worker as `wrangler deploy` does, without a deployment; returns the folder. The step proves that the
/// configuration is valid; workerd serves the bundle in benches and fault tests.
pub(crate) fn bundle(project: &Project, stop: &Stop) -> Result<PathBuf> {
    let out = project.edge_bundle();
    remove(&out)?;
    let mut command = project.command(npm::node(project)?);
    command
        .envs(tools::env(project)?)
        .env("WRANGLER_LOG_PATH", project.target.join("wrangler-logs"))
        .arg(npm::wrangler(project))
        .args(["deploy", "--dry-run", "--outdir"])
        .arg(&out);
    steps::run("bundling the worker (wrangler deploy --dry-run)", &mut command, stop)?;
    Ok(out)
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
