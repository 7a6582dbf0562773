//! `causeway job`.

use anyhow::{Context as _, ensure};
use causeway_origin::metrics::Metrics;
use causeway_origin::reconcile::{self, Difference, Plan};
use causeway_origin::tenants::Tenants;
use causeway_origin::train::{self, Options, Outcome};
use causeway_origin::trim::{self, Trimmed};
use causeway_origin::{clock, store};
use causeway_shared::limits;
use clap::{Args, Subcommand};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::output::bar;
use super::{Common, Opened, Reading, is_served, named};

/// Differences named in a report.
const NAMED: usize = 20;
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
    /// Find who belongs together anew from all evidence, compare it with the people stored, and mend what differs.
    Reconcile {
        /// Say what differs and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Train the model that predicts clicks, conversions and their worth from stored actions, and keep it if it is better
    /// than the base rate on the newest fifth of them.
    Train(Train),
}

#[derive(Debug, Args)]
pub(super) struct Train {
    /// The tenant; with one configured it need not be said.
    #[arg(long)]
    tenant: Option<String>,
    /// Verbs that are conversions, by name; all but impression and click when none is said.
    #[arg(long, value_name = "VERB")]
    conversion: Vec<String>,
    /// Say how good it would be and keep nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(Job::Run(name): &Job, common: &Common) -> anyhow::Result<()> {
    match name {
        Name::Trim => trim(common),
        Name::Reconcile { dry_run: true } => reconcile_plan(common),
        Name::Reconcile { dry_run: false } => reconcile(common),
        Name::Train(options) => train(options, common),
    }
}

/// A model that is not better is an outcome, not a failure.
fn train(options: &Train, common: &Common) -> anyhow::Result<()> {
    let mut opened = Opened::new(common)?;
    let tenant = named(&opened.rules.tenants, options.tenant.as_deref())?.clone();
    let verb = |name: &String| {
        tenant.config.vocabulary.verb(name).with_context(|| format!("the tenant's catalogue has no verb `{name}`"))
    };
    let conversions = options.conversion.iter().map(verb).collect::<Result<_, _>>()?;
    let no = tenant.no;
    let how = Options { conversions, ..Options::default() };
    let bar = bar(0, "{pos} of {len} people");
    let progress = |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    let outcome = train::run(&opened.config.data, no, clock::now(), &how, &progress)?;
    bar.finish_and_clear();
    let version = match &outcome {
        Outcome::Trained(bytes, report) if !options.dry_run => {
            Some(train::keep(&mut opened.conn, &opened.rules, clock::given()?, no, bytes, report)?)
        }
        _ => None,
    };
    let mut told = serde_json::to_value(outcome.report())?;
    if let Some(object) = told.as_object_mut() {
        object.insert("outcome".to_owned(), outcome.code().into());
        object.insert("version".to_owned(), version.into());
    }
    common.output.one(&told)
}

fn reconcile_plan(common: &Common) -> anyhow::Result<()> {
    let mut opened = Reading::new(common)?;
    let plan = planned(&mut opened.conn, &opened.tenants)?;
    common.output.one(&told(&plan, &opened.tenants))
}

/// What is left although it should be mended is a failure: somebody has to look.
fn reconcile(common: &Common) -> anyhow::Result<()> {
    let mut opened = Opened::new(common)?;
    let served = is_served(&opened.config);
    let plan = planned(&mut opened.conn, &opened.rules.tenants)?;
    let bar = bar(plan.differences.len() as u64, "{pos} of {len} differences");
    let progress = |done, all| {
        bar.set_length(all);
        bar.set_position(done);
        if served {
            std::thread::sleep(PAUSE);
        }
    };
    let metrics = Metrics::default();
    let mended = reconcile::mend(&mut opened.conn, &opened.rules, &metrics, clock::given, &plan, &progress)?;
    bar.finish_and_clear();
    let mut report = told(&plan, &opened.rules.tenants);
    let left = if plan.differences.is_empty() { plan } else { planned(&mut opened.conn, &opened.rules.tenants)? };
    if let Some(report) = report.as_object_mut() {
        report.insert("mended".to_owned(), mended.into());
        report.insert("left".to_owned(), json!(left.causes()));
    }
    common.output.one(&report)?;
    let (large, left): (Vec<&Difference>, Vec<_>) = left.differences.iter().partition(|one| one.is_too_large);
    if !large.is_empty() {
        let most = limits::AROUND_VISITORS;
        eprintln!("{} people of more than {most} visitors that share ids differ and are not mended", large.len());
    }
    ensure!(
        left.is_empty(),
        "{} differences are left that should not be: run it again, and look at what `first` names",
        left.len()
    );
    Ok(())
}

fn planned(conn: &mut Connection, tenants: &Tenants) -> anyhow::Result<Plan> {
    let bar = bar(0, "{pos} of {len} rows");
    let progress = |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    // It reads everything once: pages that were mapped would stay in this process's memory.
    conn.pragma_update(None, "mmap_size", 0)?;
    conn.pragma_update(None, "cache_size", -64 * 1_024)?; // KiB
    let snapshot = conn.transaction()?;
    let plan = reconcile::plan(&snapshot, tenants, &progress)?;
    bar.finish_and_clear();
    Ok(plan)
}

fn told(plan: &Plan, tenants: &Tenants) -> Value {
    let name = |of: &Difference| tenants.by_no(of.tenant).map(|known| known.config.name.clone()).unwrap_or_default();
    let named = |of: &Difference| json!({"tenant": name(of), "cause": of.cause.code(), "master": of.master.to_string(), "visitors": of.visitors});
    json!({
        "visitors": plan.visitors, "links": plan.links, "people": plan.people, "differences": plan.causes(),
        "first": plan.differences.iter().take(NAMED).map(named).collect::<Vec<_>>(),
    })
}

fn trim(common: &Common) -> anyhow::Result<()> {
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
