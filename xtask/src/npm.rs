//! The npm packages: wrangler with workerd, esbuild, wasm-opt, and a Node 22 that runs them.
//!
//! Node is an optional dependency for each platform that contains the binary, so that no install script runs
//! (npm 11 refuses install scripts). The machine's own Node runs npm only.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::project::Project;
use crate::stop::Stop;
use crate::{steps, tools};

/// The oldest Node that wrangler supports.
const NODE_AT_LEAST: (u32, u32) = (22, 12);
/// A copy of the lockfile that `node_modules` was installed from.
const STAMP: &str = ".causeway-lock.json";

/// Installs the packages of `package-lock.json` unless the folder already holds exactly those.
pub(crate) fn ensure(project: &Project, stop: &Stop) -> Result<()> {
    let path = project.root.join("package-lock.json");
    let lock = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let stamp = project.npm(STAMP);
    let current = std::fs::read(&stamp).is_ok_and(|installed| installed == lock);
    if current && wrangler(project).is_file() && workerd(project).is_file() && esbuild(project).is_file() {
        return Ok(());
    }
    if tools::find("npm").is_none() {
        bail!("npm is not on PATH: install Node.js with npm (any release since 18; Debian: apt-get install npm)");
    }
    // A machine's npm may be configured to omit development packages, which are all of these.
    let wanted = ["ci", "--loglevel=error", "--include=dev", "--include=optional"];
    steps::run("installing npm packages", project.command("npm").args(wanted), stop)?;
    for there in [wrangler(project), workerd(project), esbuild(project)] {
        if !there.is_file() {
            bail!("npm installed no {}: check whether its package supports this platform", there.display());
        }
    }
    // Fails with a remedy if no package has a Node for this machine.
    node(project)?;
    std::fs::write(&stamp, lock).with_context(|| format!("cannot write {}", stamp.display()))
}

/// A Node of at least [`NODE_AT_LEAST`]: the package's, otherwise the machine's.
pub(crate) fn node(project: &Project) -> Result<PathBuf> {
    let packaged = project.npm(".bin/node");
    if packaged.is_file() {
        return Ok(packaged);
    }
    let (major, minor) = NODE_AT_LEAST;
    let Some(own) = tools::find("node") else {
        bail!(
            "no Node.js package exists for this platform, and no `node` is on PATH: install {major}.{minor} or newer"
        );
    };
    let version = tools::output(project.command(&own).arg("--version")).unwrap_or_default();
    if version_of(&version).is_none_or(|version| version < NODE_AT_LEAST) {
        bail!("Node.js {version} is too old for wrangler: install {major}.{minor} or newer");
    }
    Ok(own)
}

/// `v22.23.3` as (22, 23).
fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim_start_matches('v').split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// `PATH` with the programs of the packages first, then the folder of [`node`], then the machine's folders.
pub(crate) fn path(project: &Project) -> Result<OsString> {
    let mut folders = vec![project.npm(".bin")];
    folders.extend(node(project)?.parent().map(PathBuf::from));
    if let Some(path) = std::env::var_os("PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    folders.dedup();
    Ok(std::env::join_paths(folders)?)
}

/// Wrangler's entry, to be run by [`node`].
pub(crate) fn wrangler(project: &Project) -> PathBuf {
    project.npm("wrangler/bin/wrangler.js")
}

/// The binary of workerd. npm's script around it would not pass signals on.
pub(crate) fn workerd(project: &Project) -> PathBuf {
    let platform = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("macos", "aarch64") => "workerd-darwin-arm64",
        ("macos", _) => "workerd-darwin-64",
        (_, "aarch64") => "workerd-linux-arm64",
        _ => "workerd-linux-64",
    };
    project.npm("@cloudflare").join(platform).join("bin/workerd")
}

/// The binary of esbuild, as worker-build expects it.
pub(crate) fn esbuild(project: &Project) -> PathBuf {
    let platform = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("macos", "aarch64") => "darwin-arm64",
        ("macos", _) => "darwin-x64",
        (_, "aarch64") => "linux-arm64",
        _ => "linux-x64",
    };
    project.npm("@esbuild").join(platform).join("bin/esbuild")
}

#[cfg(test)]
mod tests {
    use super::version_of;

    #[test]
    fn node_versions() {
        assert_eq!(version_of("v22.23.3"), Some((22, 23)));
        assert_eq!(version_of("v9"), None);
        assert_eq!(version_of(""), None);
        assert!(version_of("v22.9.0") < Some(super::NODE_AT_LEAST));
    }
}
