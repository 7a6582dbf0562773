//! Mutants: planted bugs that the simulator must see. Each is a patch of `tests/sim/mutants` against a copy of the
//! sources; the product and the normal simulator know nothing of them. `00-switch.patch` brings the switch, every other
//! patch one bug that is there when its name is on: one build serves them all.
//!
//! The patches apply in the order of their numbers, so that a later one may stand beside an earlier one. Lines before
//! the diff are comments: what the bug is, and who should see it. A first line `# pending: …` says that no checker can
//! see it yet; it is played in a few worlds all the same, and need not be found.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::project::Project;
use crate::stop::Stop;
use crate::{steps, test};

const PATCHES: &str = "tests/sim/mutants";
const SWITCH: &str = "switch";
/// Worlds with no bug on, in which the build with all of them must behave.
const UNSWITCHED: u64 = 20;
/// Worlds for a bug that no checker can see yet: fewer, as it takes them all.
const PENDING: u64 = 50;
/// Characters of what a checker said that are shown.
const SAID: usize = 120;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Mutants to play; all of them without one.
    names: Vec<String>,
    /// Worlds in which each must be found.
    #[arg(long, default_value_t = 1_500)]
    seeds: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { names: Vec::new(), seeds: 1_500 }
    }
}

/// One planted bug.
#[derive(Debug)]
struct Mutant {
    name: String,
    patch: PathBuf,
    pending: bool,
}

/// What a run of the simulator came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Played {
    worlds: u64,
    events: u64,
    /// The first failure: seed, and checker with what it saw.
    found: Option<(u64, String)>,
}

/// Builds once, and plays every mutant until a world fails.
pub(crate) fn run(project: &Project, options: &Options, stop: &Stop) -> Result<()> {
    let mutants = listed(&project.root.join(PATCHES))?;
    for name in &options.names {
        ensure!(mutants.iter().any(|m| m.name == *name), "there is no mutant {name} in {PATCHES}");
    }
    let program = build(project, &mutants, stop)?;
    let begun = Instant::now();
    let unswitched = play(project, &program, None, 1..=UNSWITCHED, stop)?;
    good(&unswitched)?;
    let (mut worlds, mut events, mut missed, mut pending) = (unswitched.worlds, unswitched.events, Vec::new(), 0);
    let wanted = |m: &&Mutant| m.name != SWITCH && (options.names.is_empty() || options.names.contains(&m.name));
    for mutant in mutants.iter().filter(wanted) {
        let seeds = if mutant.pending { PENDING.min(options.seeds) } else { options.seeds };
        let played = play(project, &program, Some(&mutant.name), 1..=seeds, stop)?;
        // Found by a world that is good without it.
        if let Some((seed, _)) = played.found {
            good(&play(project, &program, None, seed..=seed, stop)?)?;
        }
        worlds += played.worlds;
        events += played.events;
        println!("{}", line(mutant, &played));
        match played.found {
            None if mutant.pending => pending += 1,
            None => missed.push(mutant.name.as_str()),
            Some(_) => {}
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("mutants: {worlds} worlds, {events} events in {seconds:.0} s; {} missed, {pending} pending", missed.len());
    ensure!(missed.is_empty(), "not found in {} worlds each: {}", options.seeds, missed.join(", "));
    Ok(())
}

fn good(unswitched: &Played) -> Result<()> {
    if let Some((seed, said)) = &unswitched.found {
        bail!("with no bug on, seed {seed} fails by {said}: play it with `cargo xtask sim --seed {seed}`");
    }
    Ok(())
}

fn line(mutant: &Mutant, played: &Played) -> String {
    let Mutant { name, pending, .. } = mutant;
    match &played.found {
        Some((seed, said)) => {
            let said: String = said.chars().take(SAID).collect();
            let over = if *pending { " (it is not pending any more: say so in its patch)" } else { "" };
            format!("{name} found at seed {seed} by {said}{over}")
        }
        None if *pending => format!("{name} pending: not found in {} worlds", played.worlds),
        None => format!("{name} NOT FOUND in {} worlds", played.worlds),
    }
}

/// The patches, in the order of their numbers.
fn listed(folder: &Path) -> Result<Vec<Mutant>> {
    let mut patches: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        patches.push(entry?.path());
    }
    patches.retain(|path| path.extension().is_some_and(|ending| ending == "patch"));
    patches.sort();
    let mutant = |patch: PathBuf| {
        let stem = patch.file_stem().unwrap_or_default().to_string_lossy();
        let name = stem.split_once('-').map_or_else(|| stem.to_string(), |(_, name)| name.to_owned());
        let pending = fs::read_to_string(&patch)?.starts_with("# pending:");
        Ok(Mutant { name, patch, pending })
    };
    patches.into_iter().map(mutant).collect()
}

/// Builds the simulator from patched sources, in the project's own target folder: what comes from the registry is there
/// already. Gives where the program is.
fn build(project: &Project, mutants: &[Mutant], stop: &Stop) -> Result<PathBuf> {
    let folder = project.target.join("mutants");
    let (stage, sources) = (folder.join("stage"), folder.join("src"));
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    copy(project, &stage, stop)?;
    for mutant in mutants {
        apply(&stage, mutant)?;
    }
    // A path crate is named in the target folder by its place in the workspace and its version. With the project's version
    // the two workspaces would take each other's crates for their own.
    let manifest = stage.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    let marked = text.replacen("\nversion = \"", "\nversion = \"0.0.0-mutants.", 1);
    ensure!(text != marked, "the workspace's Cargo.toml names no version");
    fs::write(&manifest, marked)?;
    refresh(&stage, &sources)?;
    let mut cargo = project.cargo();
    cargo.current_dir(&sources).args(["build", "--quiet", "--offline", "--package", "causeway-sim"]);
    cargo.arg("--target-dir").arg(&project.target);
    steps::run("building the mutants", &mut cargo, stop)?;
    Ok(project.target.join("debug/causeway-mutants"))
}

/// Copies every file that git knows, or would take, into an empty folder.
fn copy(project: &Project, to: &Path, stop: &Stop) -> Result<()> {
    let mut git = project.command("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = steps::run("listing the sources", &mut git, stop)?;
    for name in listed.split('\0').filter(|name| project.root.join(name).is_file()) {
        let there = to.join(name);
        if let Some(folder) = there.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(project.root.join(name), &there).with_context(|| format!("cannot copy {name}"))?;
    }
    Ok(())
}

fn apply(stage: &Path, mutant: &Mutant) -> Result<()> {
    let mut git = Command::new("git");
    git.current_dir(stage).args(["apply", "--whitespace=nowarn"]).arg(&mutant.patch);
    // It must not find the project around the copy: there the copy is an ignored folder, and no patch touches it.
    git.env("GIT_CEILING_DIRECTORIES", stage.parent().unwrap_or(stage)).env_remove("GIT_DIR");
    let said = git.output().context("cannot run git")?;
    let why = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "{} does not apply any more: {}", mutant.patch.display(), why.trim());
    Ok(())
}

/// Brings a folder to what the stage holds, and writes only what differs: cargo builds anew what was written.
fn refresh(stage: &Path, sources: &Path) -> Result<()> {
    let (mut wanted, mut there) = (BTreeMap::new(), BTreeMap::new());
    walk(stage, stage, &mut wanted)?;
    walk(sources, sources, &mut there)?;
    for (name, from) in wanted {
        let path = there.remove(&name).unwrap_or_else(|| sources.join(&name));
        let fresh = fs::read(from)?;
        if fs::read(&path).is_ok_and(|old| old == fresh) {
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, fresh)?;
    }
    for gone in there.into_values() {
        fs::remove_file(gone)?;
    }
    Ok(())
}

fn walk(root: &Path, folder: &Path, to: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            walk(root, &path, to)?;
        } else if let Ok(name) = path.strip_prefix(root) {
            to.insert(name.to_string_lossy().into_owned(), path);
        }
    }
    Ok(())
}

/// Plays the worlds of these seeds with one bug on, or none, up to the first that fails.
fn play(
    project: &Project,
    program: &Path,
    name: Option<&str>,
    seeds: RangeInclusive<u64>,
    stop: &Stop,
) -> Result<Played> {
    let out = project.target.join("mutants/played.txt");
    let mut command = project.command(program);
    let (from, count) = (seeds.start().to_string(), (seeds.end() + 1 - seeds.start()).to_string());
    command.args(["--first", "--from", &from, "--seeds", &count]).stdout(Stdio::from(fs::File::create(&out)?));
    match name {
        Some(name) => command.env("CAUSEWAY_MUTANT", name),
        None => command.env_remove("CAUSEWAY_MUTANT"),
    };
    let status = test::watched(&mut command, stop)?;
    let played = read(&fs::read_to_string(&out)?);
    let name = name.unwrap_or("no bug");
    match (status.code(), &played.found) {
        (Some(0), None) | (Some(1), Some(_)) => Ok(played),
        _ => bail!("with {name} on the simulator itself ended, {status}"),
    }
}

/// Reads what the simulator prints: `seed 7 fails: CHECKER: …` for each failure, and at the end `9 worlds from seed 1,
/// 25000 events in …`.
fn read(said: &str) -> Played {
    let mut played = Played::default();
    for line in said.lines() {
        let failure = line.strip_prefix("seed ").and_then(|rest| rest.split_once(" fails: "));
        if let Some((seed, what)) = failure {
            let found = seed.parse().ok().map(|seed| (seed, what.to_owned()));
            played.found = played.found.or(found);
        }
        if let Some((worlds, rest)) = line.split_once(" worlds from seed ") {
            played.worlds = worlds.parse().unwrap_or(0);
            let events = rest.split_whitespace().nth(1).unwrap_or_default();
            played.events = events.parse().unwrap_or(0);
        }
    }
    played
}

#[cfg(test)]
mod tests {
    use super::{Played, read};

    #[test]
    fn what_the_simulator_prints_is_read() {
        let said = "seed 7 fails: facts: a: b\n  commit x; plan\nseed 9 fails: people: c\n\
                    9 worlds from seed 1, 25000 events in 2 s (12500/s): 2 failed\n";
        let found = Some((7, "facts: a: b".to_owned()));
        assert_eq!(read(said), Played { worlds: 9, events: 25_000, found });
        let said = "20 worlds from seed 1, 60000 events in 2 s (30000/s): 0 failed\n";
        assert_eq!(read(said), Played { worlds: 20, events: 60_000, found: None });
    }
}
