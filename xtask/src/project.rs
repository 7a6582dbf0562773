//! Paths in the checkout, and cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The checkout and cargo's target folder.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

impl Project {
    /// Reads the paths from `cargo metadata`, which respects a configured target folder.
    pub(crate) fn find() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let output = cargo()
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
            .arg(&manifest)
            .output()
            .context("cannot run cargo: install Rust with rustup")?;
        ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let path = |name: &str| {
            metadata
                .get(name)
                .and_then(serde_json::Value::as_str)
                .map(PathBuf::from)
                .with_context(|| format!("cargo metadata names no {name}"))
        };
        Ok(Self { root: path("workspace_root")?, target: path("target_directory")? })
    }

    /// Path of a tool that is built from source, at its version of `Cargo.lock`.
    pub(crate) fn tool(&self, name: &str) -> PathBuf {
        self.root.join(".tools/bin").join(name)
    }

    /// A path in `node_modules`.
    pub(crate) fn npm(&self, path: &str) -> PathBuf {
        self.root.join("node_modules").join(path)
    }

    /// The folder from which the worker's entry imports the module.
    pub(crate) fn edge_build(&self) -> PathBuf {
        self.root.join("edge/build")
    }

    /// The folder of the worker's bundle, as wrangler uploads it.
    pub(crate) fn edge_bundle(&self) -> PathBuf {
        self.target.join("edge-bundle")
    }

    /// A command that runs in the checkout.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    /// Cargo in the checkout.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = cargo();
        command.current_dir(&self.root);
        command
    }

    /// Cargo, run in the benches' workspace, with the target folder of the project: public crates are built once for
    /// both.
    pub(crate) fn bench_cargo(&self) -> Command {
        let mut command = cargo();
        command.current_dir(self.root.join("bench")).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// The version of a crate in `Cargo.lock`.
    pub(crate) fn locked_version(&self, name: &str) -> Result<String> {
        let path = self.root.join("Cargo.lock");
        let lock = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        version_in_lock(&lock, name)
            .map(str::to_owned)
            .with_context(|| format!("Cargo.lock names no {name}: run `cargo update --workspace`"))
    }
}

/// The cargo that started this program (variable `CARGO`), without the variables that cargo sets for the running
/// package. The build script of `ring` depends on them: `ring` and its dependents would be rebuilt after each other way
/// to call cargo.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let is_of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_of_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Reads the first two lines of the package, without a TOML parser, so that this crate builds in seconds.
fn version_in_lock<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = lock.lines();
    let wanted = format!("name = \"{name}\"");
    lines.by_ref().find(|line| *line == wanted)?;
    lines.next()?.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::version_in_lock;

    #[test]
    fn the_version_of_the_package_named_and_of_no_longer_name() {
        let lock = "[[package]]\nname = \"wasm-bindgen-macro\"\nversion = \"9.9.9\"\n\n\
                    [[package]]\nname = \"wasm-bindgen\"\nversion = \"0.2.130\"\n";
        assert_eq!(version_in_lock(lock, "wasm-bindgen"), Some("0.2.130"));
        assert_eq!(version_in_lock(lock, "worker"), None);
    }
}
