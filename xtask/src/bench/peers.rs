//! The peers of the benches: Rust workers for `bench edge`, which worker-build builds from `xtask/peers`, and Python
//! packages.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::project::Project;
use crate::steps;
use crate::stop::Stop;

/// The Rust peers: name and cargo features of each worker; all are built from one crate.
const RUST_PEERS: [(&str, &str); 4] =
    [("empty", ""), ("empty-queue", "queue"), ("read", "read"), ("read-queue", "read,queue")];
const SHIM: &str = "shim.wasm";
/// The peer of `bench graph`, from PyPI.
const SCIPY: &str = "scipy==1.16.3";
/// The peer of `bench audience`, from PyPI.
const DUCKDB: &str = "duckdb==2.0.0";

/// A Python with scipy; `None` if it cannot be installed.
pub(crate) fn scipy(project: &Project, stop: &Stop) -> Result<Option<PathBuf>> {
    python(project, "scipy", SCIPY, stop)
}

/// A Python with DuckDB; `None` if it cannot be installed.
pub(crate) fn duckdb(project: &Project, stop: &Stop) -> Result<Option<PathBuf>> {
    python(project, "duckdb", DUCKDB, stop)
}

/// A Python with a package, in its own folder; `None` without a Python for which the package can be installed.
fn python(project: &Project, name: &str, package: &str, stop: &Stop) -> Result<Option<PathBuf>> {
    let folder = project.target.join(name);
    let (python, stamp) = (folder.join("bin/python"), folder.join("stamp"));
    if std::fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == package) {
        return Ok(Some(python));
    }
    let mut make = project.command("python3");
    let made = steps::run(&format!("creating a folder for {name}"), make.args(["-m", "venv"]).arg(&folder), stop);
    let mut install = project.command(&python);
    install.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", package]);
    if let Err(error) = made.and_then(|_| steps::run(&format!("installing {name}"), &mut install, stop)) {
        stop.check()?;
        eprintln!("{name} is left out: {error:#}");
        return Ok(None);
    }
    std::fs::write(&stamp, package)?;
    Ok(Some(python))
}

/// Builds the peers that are missing or older than their source. Returns the folder with one entry for each peer.
pub(crate) fn build(project: &Project, env: &[(&'static str, OsString)], stop: &Stop) -> Result<PathBuf> {
    let source = project.root.join("bench/peers");
    let folder = project.target.join("peers");
    let stamp = folder.join("stamp");
    let wanted = stamp_of(project, &source)?;
    if std::fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == wanted) {
        return Ok(folder);
    }
    for (name, features) in RUST_PEERS {
        let mut command = project.command(project.tool("worker-build"));
        command
            .envs(env.iter().cloned())
            .env("CARGO_TARGET_DIR", &folder)
            .arg("--release")
            .arg("--out-dir")
            .arg(folder.join(name));
        command.arg(source.join("rust")).args(["--locked", "--features", features]);
        steps::run(&format!("building the peer `{name}`"), &mut command, stop)?;
    }
    let mut command = project.cargo();
    command.env("CARGO_TARGET_DIR", &folder).args(["build", "--release", "--locked"]);
    command.args(["--target", "wasm32-unknown-unknown", "--manifest-path"]).arg(source.join("shim/Cargo.toml"));
    steps::run("building the peer `shim`", &mut command, stop)?;
    let built = folder.join("wasm32-unknown-unknown/release/causeway_peer_shim.wasm");
    std::fs::copy(&built, folder.join(SHIM)).with_context(|| format!("cargo left no {}", built.display()))?;
    std::fs::write(&stamp, wanted)?;
    Ok(folder)
}

/// A hash of the sources of the peers, of the compiler and of its flags, which are those of the edge.
fn stamp_of(project: &Project, source: &Path) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    let of_peers =
        ["Cargo.toml", "Cargo.lock", "rust/Cargo.toml", "rust/src/lib.rs", "shim/Cargo.toml", "shim/src/lib.rs"];
    let of_all = [".cargo/config.toml", "rust-toolchain.toml", "package-lock.json"];
    let paths = of_peers.map(|file| source.join(file)).into_iter().chain(of_all.map(|file| project.root.join(file)));
    for path in paths {
        std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}\n", hasher.finish()))
}
