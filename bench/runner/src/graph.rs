//! `graph`: connected components in memory, compared with petgraph and scipy; and the job `reconcile` and checks of
//! connections on a store of millions of visitors, a fifth of which belong to one member.

mod served;
mod stored;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use causeway_shared::identity::people::Forest;
use clap::Args;
use petgraph::unionfind::UnionFind;

use crate::origin::Origin;
use crate::random::Random;
use crate::report::{self, Bar, Line, median};
use crate::stop::Stop;

const BENCH: &str = "graph";
/// Prints scipy's number of components, and the seconds including the construction of the matrix.
const SCIPY: &str = include_str!("graph/components.py");

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of vertices in memory.
    #[arg(long, default_value_t = 20_000_000)]
    vertices: u32,
    /// Number of edges in memory, a tenth of them at one vertex.
    #[arg(long, default_value_t = 10_000_000)]
    edges: usize,
    /// Number of rounds in memory. The cases take turns in a round; the median over the rounds is reported.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Number of visitors in the store; three fifths of them have a link, one fifth to the same member.
    #[arg(long, default_value_t = 5_000_000)]
    visitors: u32,
    /// Number of checked connections.
    #[arg(long, default_value_t = 200_000)]
    checks: u32,
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    // The store comes first, while this process uses little memory.
    let origin = Origin::start(served::SETTINGS, stop, |config| stored::run(config, options, json, stop))?;
    served::run(&origin, options, json, stop)?;
    drop(origin);
    components(options, json, stop)
}

fn edges(options: &Options) -> Vec<(u32, u32)> {
    let mut random = Random::new();
    let mut vertex = || u32::try_from(random.below(options.vertices.into())).unwrap_or_default();
    let hub = vertex();
    (0..options.edges).map(|n| (if n % 10 == 0 { hub } else { vertex() }, vertex())).collect()
}

fn components(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let edges = edges(options);
    let python = std::env::var_os("CAUSEWAY_SCIPY").map(PathBuf::from);
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let file = folder.path().join("edges");
    write(&edges, &file)?;
    let expected = petgraph(options.vertices, &edges).0;
    let (mut ours, mut theirs, mut scipys) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        stop.check()?;
        let start = Instant::now();
        let mut forest = Forest::new(options.vertices);
        edges.iter().for_each(|(a, b)| forest.join(*a, *b));
        let labels = forest.labels();
        ours.push(start.elapsed().as_secs_f64());
        if round == 0 {
            ensure!(same(&labels, &expected), "the components differ from petgraph's");
        }
        theirs.push(petgraph(options.vertices, &edges).1);
        if let Some(python) = &python {
            let roots = labels.iter().zip(0..).filter(|(label, vertex)| *label == vertex).count();
            scipys.push(scipy(python, &file, options.vertices, roots)?);
        }
    }
    let rate = |seconds: Vec<f64>| options.edges as f64 / 1e6 / median(seconds);
    let (value, whole) = (rate(ours), options.edges >= 10_000_000);
    let line = |peer, bar: Option<f64>| {
        let case = format!("components, {} M edges", options.edges / 1_000_000);
        let bar = bar.filter(|_| whole).map(Bar::AtLeast);
        report::print(&Line { bench: BENCH, case, value, unit: "M edges/s", peer, bar }, json);
    };
    line(None, Some(16.0));
    line(Some(("petgraph".to_owned(), rate(theirs))), None);
    if scipys.is_empty() {
        eprintln!("scipy is left out: there is no Python for which it can be installed");
    } else {
        line(Some(("scipy".to_owned(), rate(scipys))), Some(5.0));
    }
    Ok(())
}

/// Labels of the vertices, and the seconds.
fn petgraph(vertices: u32, edges: &[(u32, u32)]) -> (Vec<u32>, f64) {
    let start = Instant::now();
    let mut sets = UnionFind::<u32>::new(vertices as usize);
    for (a, b) in edges {
        sets.union(*a, *b);
    }
    let labels = sets.into_labeling();
    (labels, start.elapsed().as_secs_f64())
}

/// Whether two labellings partition the vertices alike.
fn same(one: &[u32], other: &[u32]) -> bool {
    let mut pairs: Vec<(u32, u32)> = one.iter().copied().zip(other.iter().copied()).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let ones = pairs.chunk_by(|a, b| a.0 == b.0).count();
    pairs.sort_unstable_by_key(|pair| pair.1);
    let others = pairs.chunk_by(|a, b| a.1 == b.1).count();
    one.len() == other.len() && ones == pairs.len() && others == pairs.len()
}

fn write(edges: &[(u32, u32)], file: &Path) -> Result<()> {
    let mut to = BufWriter::with_capacity(1 << 20, File::create(file)?);
    for (a, b) in edges {
        to.write_all(&a.to_le_bytes())?;
        to.write_all(&b.to_le_bytes())?;
    }
    Ok(to.flush()?)
}

fn scipy(python: &Path, file: &Path, vertices: u32, components: usize) -> Result<f64> {
    let output = Command::new(python).args(["-c", SCIPY]).arg(file).arg(vertices.to_string()).output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "scipy failed: {}", String::from_utf8_lossy(&output.stderr));
    let (found, seconds) = told.trim().split_once(' ').context("scipy printed no result")?;
    ensure!(found.parse() == Ok(components), "scipy finds {found} components instead of {components}");
    Ok(seconds.parse()?)
}
