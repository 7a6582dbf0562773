//! Builds the origin's binary, `causeway`, in the release profile, which tests and benches run.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::project::Project;
use crate::steps;
use crate::stop::Stop;

/// Returns the binary's path.
pub(crate) fn build(project: &Project, stop: &Stop) -> Result<PathBuf> {
    let mut command = project.cargo();
    command.args(["build", "--release", "--package", "causeway-origin", "--bin", "causeway"]);
    steps::run("building the origin", &mut command, stop)?;
    let binary = project.target.join("release/causeway");
    ensure!(binary.is_file(), "cargo left no {}", binary.display());
    Ok(binary)
}
