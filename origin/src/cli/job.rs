//! `causeway job`.

use causeway_origin::trim::{self, Trimmed};
use causeway_origin::{clock, store};
use clap::Subcommand;
use serde_json::{Value, json};

use super::output::bar;
use super::{Common, is_served};

/// Visitors trimmed in one transaction.
const SOME: u32 = 2_000;
/// Longer than a serving origin sleeps between two tries to write.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(120);

#[derive(Debug, Subcommand)]
pub(super) enum Job {
    /// Run one to its end.
    #[command(subcommand)]
    Run(Name),
}

#[derive(Debug, Subcommand)]
pub(super) enum Name {
    /// Drop expired segments, actions beyond their days, FactIds that nothing can repeat.
    Trim,
}

pub(super) fn run(Job::Run(Name::Trim): &Job, common: &Common) -> anyhow::Result<()> {
    let config = common.load()?;
    let _writing = store::writing(&config.data, false)?;
    let mut conn = store::open(&config.data)?;
    let all: i64 = conn.query_row("SELECT count(*) FROM visitors", [], |row| row.get(0))?;
    let bar = bar(store::unsigned(all), "{pos} of {len} visitors");
    let (now, served, mut trimmed, mut row) = (clock::now(), is_served(&config), Trimmed::default(), 0);
    while let Some(last) = trim::some(&mut conn, row, SOME, now, &mut trimmed)? {
        row = last;
        bar.set_position(trimmed.visitors);
        if served {
            std::thread::sleep(PAUSE);
        }
    }
    bar.finish_and_clear();
    common.output.one(&describe(&trimmed))
}

pub(super) fn describe(trimmed: &Trimmed) -> Value {
    json!({
        "visitors": trimmed.visitors, "changed": trimmed.changed,
        "segments": trimmed.segments, "actions": trimmed.actions,
    })
}
