//! `causeway job`.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use causeway_origin::base::clock;
use causeway_origin::base::job_kinds::{RunOutcome, Trigger};
use causeway_origin::base::metrics::Metrics;
use causeway_origin::campaigns::train::Options;
use causeway_origin::ingest::backlog::Backlog;
use causeway_origin::jobs::context::JobContext;
use causeway_origin::jobs::runner::JobRunner;
use causeway_origin::jobs::runs::{self, JobRun, RunRequest};
use causeway_origin::store::tenants::no_word;
use causeway_origin::store::{self, StoreError, StoreLock};
use causeway_shared::base::limits;
use clap::{Args, Subcommand};
use rusqlite::Connection;
use serde_json::Value;

use super::audience_parts::load_columns;
use super::output::{print_line, progress_bar, show_progress};
use super::{CommonOptions, Config, ReadableStore, UsageError, WritableStore, is_served, named_tenant};

/// How long a command waits for another run to end: those of a small store take no longer.
const WAIT: Duration = Duration::from_secs(5);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Subcommand)]
pub(super) enum JobCommand {
    /// Run one to its end; one that was cut goes on where it was.
    #[command(subcommand)]
    Run(JobName),
    /// The newest runs, of timers, of the admin side and of commands.
    List {
        /// Of one job alone.
        #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(causeway_origin::base::job_kinds::JobKind::names()))]
        job: Option<String>,
        /// How many.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        limit: u16,
    },
    /// One run, with its report.
    Show {
        /// Its number.
        run: i64,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum JobName {
    /// Drop expired segments, actions beyond their days, FactIds that nothing can repeat.
    Trim(RunOptions),
    /// Erase visitors that were not seen for `forget_after_days` of their tenant.
    Retention(RunOptions),
    /// Find who belongs together anew from all evidence, compare it with the people stored, and mend what differs.
    Reconcile(RunOptions),
    /// Have every key of the KV written anew: after a loss of it.
    Publish(RunOptions),
    /// Publish to all visitors of a person now what they do not know of one another yet, before its pause is over.
    Compact(RunOptions),
    /// Count the sums of experiments anew from what people saw and did, and mend what differs.
    Rollup(RunOptions),
    /// Read every key of the KV back through the edge, compare it with the store, and have what differs written anew. The
    /// origin must be serving.
    Verify(RunOptions),
    /// Have the columns of audiences built anew by the origin, or by the next that starts. Until then audiences answer that they
    /// are being built.
    Columns(RunOptions),
    /// Make audiences that are kept as segments what their filters mean now: those that are due.
    Materialise(RunOptions),
    /// Sum up in which hours of the week all people are active: of whom little is known, the best time is everybody's.
    Rhythm(RunOptions),
    /// Tell the people of sends, those that are due.
    Send(RunOptions),
    /// Read everything in the store once and report what is damaged: facts of a damaged visitor wait from then on.
    Scrub(RunOptions),
    /// Train the model that predicts clicks, conversions and their worth from stored actions, and keep it if it is better
    /// than the base rate on the newest fifth of them.
    Train(TrainOptions),
}

#[derive(Debug, Args)]
pub(super) struct RunOptions {
    /// Say what would be done and change nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct TrainOptions {
    /// The tenant; with one configured it need not be said.
    #[arg(long)]
    tenant: Option<String>,
    /// Verbs that are conversions beside purchases, by name.
    #[arg(long, value_name = "VERB")]
    conversion: Vec<String>,
    /// Say how good it would be and keep nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(command: &JobCommand, common: &CommonOptions) -> anyhow::Result<()> {
    match command {
        JobCommand::Run(name) => {
            let mut opened = WritableStore::new(common)?;
            let (asked, training) = read_request(name, &opened)?;
            report_run(&carry_out(&mut opened, asked, &training, |_| Ok(()))?, common)
        }
        JobCommand::List { job, limit } => {
            let opened = ReadableStore::new(common)?;
            let job = job.as_deref().and_then(causeway_origin::base::job_kinds::JobKind::named);
            let found = runs::list_runs(&opened.conn, job, usize::from(*limit))?;
            let told: Vec<Value> = found.iter().map(|run| run.told(&opened.tenants)).collect();
            let columns =
                ["run", "job", "tenant", "woken", "dry_run", "started_ms", "ended_ms", "done", "all", "outcome"];
            common.output.list(&columns, &told)
        }
        JobCommand::Show { run } => {
            let opened = ReadableStore::new(common)?;
            let found = runs::find_run(&opened.conn, *run)?;
            let found =
                found.with_context(|| format!("there is no run {run}: `causeway job list` shows those kept"))?;
            common.output.one(&found.told(&opened.tenants))
        }
    }
}

fn read_request(name: &JobName, opened: &WritableStore) -> anyhow::Result<(RunRequest, Options)> {
    let of = |job, dry: &RunOptions| RunRequest { job, tenant: None, woken: Trigger::Command, dry_run: dry.dry_run };
    Ok(match name {
        JobName::Trim(dry) => (of(causeway_origin::base::job_kinds::JobKind::Trim, dry), Options::default()),
        JobName::Retention(dry) => (of(causeway_origin::base::job_kinds::JobKind::Retention, dry), Options::default()),
        JobName::Reconcile(dry) => (of(causeway_origin::base::job_kinds::JobKind::Reconcile, dry), Options::default()),
        JobName::Publish(dry) => (of(causeway_origin::base::job_kinds::JobKind::Publish, dry), Options::default()),
        JobName::Compact(dry) => (of(causeway_origin::base::job_kinds::JobKind::Compact, dry), Options::default()),
        JobName::Rollup(dry) => (of(causeway_origin::base::job_kinds::JobKind::Rollup, dry), Options::default()),
        JobName::Verify(dry) => (of(causeway_origin::base::job_kinds::JobKind::Verify, dry), Options::default()),
        JobName::Columns(dry) => (of(causeway_origin::base::job_kinds::JobKind::Columns, dry), Options::default()),
        JobName::Materialise(dry) => {
            (of(causeway_origin::base::job_kinds::JobKind::Materialise, dry), Options::default())
        }
        JobName::Rhythm(dry) => (of(causeway_origin::base::job_kinds::JobKind::Rhythm, dry), Options::default()),
        JobName::Send(dry) => (of(causeway_origin::base::job_kinds::JobKind::Send, dry), Options::default()),
        JobName::Scrub(dry) => (of(causeway_origin::base::job_kinds::JobKind::Scrub, dry), Options::default()),
        JobName::Train(train) => {
            let tenant = named_tenant(&opened.rules.tenants, train.tenant.as_deref())?;
            let words = &tenant.config.vocabulary;
            let verb =
                |name: &String| words.verb(name).ok_or_else(|| UsageError(format!("{name}: {}", no_word("verb"))));
            let conversions = train.conversion.iter().map(verb).collect::<Result<_, _>>()?;
            let asked = of(causeway_origin::base::job_kinds::JobKind::Train, &RunOptions { dry_run: train.dry_run });
            (RunRequest { tenant: Some(tenant.no), ..asked }, Options { conversions, ..Options::default() })
        }
    })
}

/// Runs it here and now, beside a serving origin too, but beside no other run. What is to be done of which only this run is
/// to know is done `before`.
pub(super) fn carry_out(
    opened: &mut WritableStore,
    asked: RunRequest,
    training: &Options,
    before: impl FnOnce(&Connection) -> anyhow::Result<()>,
) -> anyhow::Result<JobRun> {
    let _alone = lock_jobs(&opened.config).with_context(|| under_way(opened))?;
    before(&opened.conn)?;
    run_alone(opened, asked, training)
}

/// The same; `None` where another run is under way.
pub(super) fn try_carry_out(
    opened: &mut WritableStore,
    asked: RunRequest,
    training: &Options,
) -> anyhow::Result<Option<JobRun>> {
    match store::lock_job(&opened.config.data) {
        Ok(_alone) => run_alone(opened, asked, training).map(Some),
        Err(StoreError::Job(_)) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn run_alone(opened: &mut WritableStore, asked: RunRequest, training: &Options) -> anyhow::Result<JobRun> {
    let served = is_served(&opened.config);
    let can = served || asked.job != causeway_origin::base::job_kinds::JobKind::Verify;
    ensure!(can, "no origin serves from that folder: the KV is read back by the edge that syncs with it");
    let notes = Mutex::new(store::open(&opened.config.data)?);
    let run = runs::begin_asked(&mut opened.conn, asked, clock::now())?;
    let bar = progress_bar(0, "{pos} of {len}");
    let pause = || {
        // One that serves may have begun meanwhile.
        if is_served(&opened.config) {
            std::thread::sleep(causeway_origin::jobs::context::PAUSE);
        }
    };
    let backlog = || {
        let store = notes.lock().unwrap_or_else(PoisonError::into_inner);
        Backlog::of_log(&opened.config.data, &store, &opened.rules.tenants)
    };
    let data = opened.config.data.clone();
    let shown = show_progress(&bar);
    let begun = Instant::now();
    let place = JobContext {
        data: &opened.config.data,
        hands_out: !served,
        conn: &mut opened.conn,
        rules: &opened.rules,
        metrics: &Metrics::default(),
        backlog: &backlog,
        audience: &|| load_columns(&data, clock::now()),
        training,
        given: &causeway_origin::store::write_txn::draw_inputs,
        pause: &pause,
        wait: &std::thread::sleep,
        elapsed: &|| begun.elapsed(),
        told: &|done, all| {
            shown(done, all);
            Ok(())
        },
        to_the_end: &AtomicBool::new(true),
    };
    let ended = JobRunner { place, notes: &notes, stop: &|| false }.run(&run);
    bar.finish_and_clear();
    Ok(ended?)
}

/// The lock of all runs, waited for a little.
fn lock_jobs(config: &Config) -> Result<StoreLock, StoreError> {
    let begun = Instant::now();
    loop {
        match store::lock_job(&config.data) {
            Err(StoreError::Job(_)) if begun.elapsed() < WAIT => std::thread::sleep(LOOK),
            lock => return lock,
        }
    }
}

/// Which run it is that another cannot be beside.
fn under_way(opened: &WritableStore) -> String {
    let newest = runs::list_runs(&opened.conn, None, runs::PAGE).unwrap_or_default();
    let run = newest.into_iter().find(|run| run.outcome.is_none() && run.started.is_some());
    run.map_or_else(
        || "a job is under way".to_owned(),
        |JobRun { no, asked, .. }| {
            format!("run {no}, {} woken by a {}, is under way", asked.job.name(), asked.woken.name())
        },
    )
}

/// Prints what a run came to. One that failed is told as an error.
pub(super) fn report_run(run: &JobRun, common: &CommonOptions) -> anyhow::Result<()> {
    common.output.one(&run.report)?;
    let large = run.report.get("too_large").and_then(Value::as_u64).unwrap_or(0);
    if large > 0 {
        print_line(&format!(
            "{large} people of more than {} visitors that share ids differ and are not mended",
            limits::AROUND_VISITORS
        ));
    }
    let cut = run.outcome == Some(RunOutcome::Interrupted);
    ensure!(
        !cut,
        "run {} was cut, as another wrote to the store for too long: the same command goes on with it",
        run.no
    );
    let why = run.report.get("error").and_then(Value::as_str).unwrap_or_default();
    ensure!(run.outcome == Some(RunOutcome::Done), "run {} failed: {why}", run.no);
    Ok(())
}
