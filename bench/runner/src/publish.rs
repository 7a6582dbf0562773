//! `publish`: the rate at which the origin writes all keys again after a restore, with the platform's bulk call; and
//! the rate of the fold meanwhile, compared with the fold alone.
//!
//! The stand-in for the platform keeps the documented limits. It and the load share the machine's cores with the
//! origin.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use causeway_shared::profiles::view::StoredValue;
use causeway_shared::wire::kv;
use causeway_standins::kv_api::{ACCOUNT, KvApi, NAMESPACE, TOKEN};
use clap::Args;

use crate::ingest::{self, Load, Shape, visitor};
use crate::origin::{self, Origin, TENANT};
use crate::report::{self, Bar, Line};
use crate::stop::Stop;

const BENCH: &str = "publish";
/// Number of visitors whose published value is read back.
const CHECKED: u64 = 200;
/// Connections that send facts.
const CONNECTIONS: usize = 4;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of visitors, each with one key.
    #[arg(long, default_value_t = 1_000_000)]
    visitors: usize,
    /// Number of facts whose fold is measured.
    #[arg(long, default_value_t = 2_000_000)]
    facts: usize,
}

pub(crate) fn run(options: &Options, json: bool, stop: &Stop) -> Result<()> {
    let api = KvApi::start()?;
    let Options { visitors, facts } = *options;
    let most = (visitors + 2 * facts).clamp(10_000, 100_000_000);
    // Jobs of their own timers would share the cores.
    let mut origin = Origin::start(&format!("most_unfolded = {most}\n"), stop, |_| Ok(()))?;
    let until = origin.now();
    let each = Load::new(&Shape { facts: visitors, visitors, each_once: true, until, first_in: 0, number: 1 }, &origin);
    fold(&origin, &each, visitors, stop)?;
    let shape = |number| Shape { facts, visitors, each_once: false, until, first_in: 0, number };
    let alone = fold(&origin, &Load::new(&shape(2), &origin), facts, stop)?;

    let configure = |config: &Path| {
        let text = std::fs::read_to_string(config)?;
        let table =
            format!("[publish]\napi = \"{}\"\naccount = \"{ACCOUNT}\"\nnamespace = \"{NAMESPACE}\"\n", api.url());
        std::fs::write(config, text.replace("[[tenant]]", &format!("{table}[[tenant]]")))?;
        origin::run_with_input(config, &["keys", "set-platform-token"], TOKEN)?;
        restore(config)
    };
    let published = publish_all(&mut origin, &api, visitors, stop, configure)?;
    check_values(&api, visitors, until)?;

    // All keys are due again while facts are folded.
    origin.restart(stop, restore)?;
    let before = api.counts().written;
    let meanwhile = fold(&origin, &Load::new(&shape(3), &origin), facts, stop)?;
    let written = api.counts().written - before;
    ensure!(written > 0 || visitors < 10_000, "no key was published during the fold");

    let keys = visitors as f64;
    let print = |case: &str, value, unit, peer, bar| {
        report::print(&Line { bench: BENCH, case: case.to_owned(), value, unit, peer, bar }, json);
    };
    print("keys", keys / published.as_secs_f64(), "keys/s", None, Some(Bar::AtLeast(20_000.0)));
    print("all-keys-after-restore", published.as_secs_f64(), "s", None, Some(Bar::AtMost(keys / 1e6 * 120.0)));
    let rate = |time: Duration| facts as f64 / time.as_secs_f64();
    let peer = Some(("fold alone".to_owned(), rate(alone)));
    print("fold-while-publishing", rate(meanwhile), "facts/s", peer, Some(Bar::AtLeast(0.9)));
    print("keys-while-folding", written as f64 / meanwhile.as_secs_f64(), "keys/s", None, None);
    print("memory-peak", origin.memory_peak_mb()?, "MB", None, None);
    Ok(())
}

/// Backs the store up and restores the backup, which makes every key due.
fn restore(config: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let backup = folder.path().join("backup");
    let backup = backup.to_str().context("the temporary folder is not UTF-8")?;
    origin::said(config, &["backup", "--to", backup])?;
    origin::said(config, &["restore", "--from", backup, "--yes"])?;
    Ok(())
}

/// Sends facts, and returns the time until they are folded.
fn fold(origin: &Origin, load: &Load, facts: usize, stop: &Stop) -> Result<Duration> {
    let folded = || -> Result<f64> {
        Ok(origin.metric("causeway_facts_accepted_total")? + origin.metric("causeway_facts_duplicate_total")?)
    };
    let (before, begun) = (folded()?, Instant::now());
    ingest::send(origin, &load.requests, CONNECTIONS, stop)?;
    origin.until(stop, "all facts are folded", || Ok(folded()? - before >= facts as f64))?;
    Ok(begun.elapsed())
}

/// Restarts the origin with every key due, and returns the time until all of them are written.
fn publish_all(
    origin: &mut Origin,
    api: &KvApi,
    visitors: usize,
    stop: &Stop,
    between: impl FnOnce(&Path) -> Result<()>,
) -> Result<Duration> {
    let before = api.counts().written;
    origin.restart(stop, between)?;
    let begun = Instant::now();
    // Fewer keys than those of a bulk call are left to the publish consumer, which this bench does not start.
    let enough = before + visitors as u64 - 1_000;
    origin.until(stop, "all keys are written", || Ok(api.counts().written >= enough))?;
    Ok(begun.elapsed())
}

/// Reads published snapshots back.
fn check_values(api: &KvApi, visitors: usize, until: u64) -> Result<()> {
    let values = api.values();
    let mut found = 0;
    for rank in (0..CHECKED).map(|n| n * visitors as u64 / CHECKED) {
        let of = visitor(rank, until);
        let key = format!("v:{TENANT}:{of}");
        let Some(value) = values.get(&key) else { continue };
        let stored = kv::decode_stored(&key, of, value.as_bytes())?;
        let StoredValue::Snapshot(snapshot) = stored else { anyhow::bail!("{key} has a tombstone") };
        ensure!(snapshot.profiles.contains_key(&of), "{key} lacks its visitor");
        found += 1;
    }
    ensure!(found * 100 >= CHECKED * 95, "{found} of {CHECKED} visitors have a value");
    ensure!(api.counts().too_soon == 0, "a key was written twice in a second");
    Ok(())
}
