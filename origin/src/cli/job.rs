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
use causeway_origin::store;
use causeway_origin::store::LockError;
use causeway_origin::store::RunNo;
use causeway_origin::store::StoreLock;
use causeway_origin::store::tenants::no_word;
use causeway_shared::base::limits;
use clap::{Args, Subcommand};
use rusqlite::Connection;
use serde_json::Value;

use super::audience_parts::load_indexes;
use super::output::{print_line, progress_bar, show_progress};
use super::publish_progress::await_keys;
use super::{CommonOptions, Config, ReadableStore, UsageError, WritableStore, is_served, named_tenant};

/// How long a command waits for another run to end. Runs on a small store are shorter.
const WAIT: Duration = Duration::from_secs(5);
/// Interval between two attempts to take the lock.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Subcommand)]
pub(super) enum JobCommand {
    /// Run a job to its end. An interrupted run continues.
    #[command(subcommand)]
    Run(JobName),
    /// List the newest runs, started by timers, the admin API and commands.
    List {
        /// Only runs of this job.
        #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(causeway_origin::base::job_kinds::JobKind::names()))]
        job: Option<String>,
        /// Largest number of runs.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        limit: u16,
    },
    /// Show one run, with its report.
    Show {
        /// The run's number.
        run: i64,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum JobName {
    /// Delete expired segments, expired actions, and FactIds that no message can repeat any more.
    Trim(RunOptions),
    /// Erase visitors that were not seen for their tenant's `forget_after_days`.
    Retention(RunOptions),
    /// Compute all people again from all evidence, compare them with the stored people, and repair differences.
    Reconcile(RunOptions),
    /// Publish every KV key again, after a loss of the KV.
    Publish(PublishOptions),
    /// Publish to all visitors of each person now the siblings' changes that wait for the end of a pause.
    Compact(RunOptions),
    /// Compute the sums of experiments again from exposures and actions, and repair differences.
    Rollup(RunOptions),
    /// Read every KV key back through the edge, compare it with the store, and publish differing keys again. The origin
    /// must be serving.
    Verify(RunOptions),
    /// Rebuild the audience index, in the serving origin or at its next start. Until then, audience queries answer that
    /// the index is being built.
    Index(RunOptions),
    /// Refresh the materialised audiences that are due.
    Materialise(RunOptions),
    /// Compute the activity histogram over all people. It gives the best send time of people about whom too little is
    /// known.
    Activity(RunOptions),
    /// Deliver the sends that are due.
    Send(RunOptions),
    /// Read every row of the store once and report damage. The facts of a damaged visitor wait from then on.
    Scrub(RunOptions),
    /// Train the model that predicts clicks, conversions and their value from stored actions. The model is stored if it
    /// is better than the base rate on the newest fifth of the actions.
    Train(TrainOptions),
}

#[derive(Debug, Args)]
pub(super) struct RunOptions {
    /// Show the changes without making them.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct PublishOptions {
    /// Show the changes without making them.
    #[arg(long)]
    dry_run: bool,
    /// Wait until every key is written, and show progress, rate and remaining time. On a terminal this is the default.
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
pub(super) struct TrainOptions {
    /// The tenant. Optional if only one tenant is configured.
    #[arg(long)]
    tenant: Option<String>,
    /// Action types that count as conversions in addition to purchases.
    #[arg(long, value_name = "ACTION_TYPE")]
    conversion: Vec<String>,
    /// Show the model's quality and store nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(command: &JobCommand, common: &CommonOptions) -> anyhow::Result<()> {
    match command {
        JobCommand::Run(name) => {
            let mut opened = WritableStore::new(common)?;
            let (asked, training) = read_request(name, &opened)?;
            report_run(&carry_out(&mut opened, asked, &training, |_| Ok(()))?, common)?;
            match name {
                JobName::Publish(PublishOptions { dry_run: false, wait }) => await_keys(&opened, *wait),
                _ => Ok(()),
            }
        }
        JobCommand::List { job, limit } => {
            let opened = ReadableStore::new(common)?;
            let job = job.as_deref().and_then(causeway_origin::base::job_kinds::JobKind::named);
            let found = runs::list_runs(&opened.conn, job, usize::from(*limit))?;
            let rows: Vec<_> = found.iter().map(|run| run.describe(&opened.tenants)).collect();
            let columns =
                ["run", "job", "tenant", "trigger", "dry_run", "started_ms", "ended_ms", "done", "all", "outcome"];
            common.output.list(&columns, &rows)
        }
        JobCommand::Show { run } => {
            let opened = ReadableStore::new(common)?;
            let found = runs::find_run(&opened.conn, RunNo::from_number(*run))?;
            let found = found.with_context(|| format!("run {run} not found: see `causeway job list`"))?;
            common.output.one(&found.describe(&opened.tenants))
        }
    }
}

fn read_request(name: &JobName, opened: &WritableStore) -> anyhow::Result<(RunRequest, Options)> {
    let of = |job, dry: &RunOptions| RunRequest { job, tenant: None, trigger: Trigger::Command, dry_run: dry.dry_run };
    Ok(match name {
        JobName::Trim(dry) => (of(causeway_origin::base::job_kinds::JobKind::Trim, dry), Options::default()),
        JobName::Retention(dry) => (of(causeway_origin::base::job_kinds::JobKind::Retention, dry), Options::default()),
        JobName::Reconcile(dry) => (of(causeway_origin::base::job_kinds::JobKind::Reconcile, dry), Options::default()),
        JobName::Publish(options) => {
            let dry = RunOptions { dry_run: options.dry_run };
            (of(causeway_origin::base::job_kinds::JobKind::Publish, &dry), Options::default())
        }
        JobName::Compact(dry) => (of(causeway_origin::base::job_kinds::JobKind::Compact, dry), Options::default()),
        JobName::Rollup(dry) => (of(causeway_origin::base::job_kinds::JobKind::Rollup, dry), Options::default()),
        JobName::Verify(dry) => (of(causeway_origin::base::job_kinds::JobKind::Verify, dry), Options::default()),
        JobName::Index(dry) => (of(causeway_origin::base::job_kinds::JobKind::Index, dry), Options::default()),
        JobName::Materialise(dry) => {
            (of(causeway_origin::base::job_kinds::JobKind::Materialise, dry), Options::default())
        }
        JobName::Activity(dry) => (of(causeway_origin::base::job_kinds::JobKind::Activity, dry), Options::default()),
        JobName::Send(dry) => (of(causeway_origin::base::job_kinds::JobKind::Send, dry), Options::default()),
        JobName::Scrub(dry) => (of(causeway_origin::base::job_kinds::JobKind::Scrub, dry), Options::default()),
        JobName::Train(train) => {
            let tenant = named_tenant(&opened.rules.tenants, train.tenant.as_deref())?;
            let words = &tenant.config.vocabulary;
            let action_type = |name: &String| {
                words.action_type(name).ok_or_else(|| UsageError(format!("{name}: {}", no_word("action_type"))))
            };
            let conversions = train.conversion.iter().map(action_type).collect::<Result<_, _>>()?;
            let asked = of(causeway_origin::base::job_kinds::JobKind::Train, &RunOptions { dry_run: train.dry_run });
            (RunRequest { tenant: Some(tenant.no), ..asked }, Options { conversions, ..Options::default() })
        }
    })
}

/// Runs the job in this process, in parallel with a serving origin but with no other run. `before` prepares work that
/// only this run may see.
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

/// Like [`carry_out`]; `None` if another run is in progress.
pub(super) fn try_carry_out(
    opened: &mut WritableStore,
    asked: RunRequest,
    training: &Options,
) -> anyhow::Result<Option<JobRun>> {
    match store::lock_job(&opened.config.data) {
        Ok(_alone) => run_alone(opened, asked, training).map(Some),
        Err(LockError::Job(_)) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn run_alone(opened: &mut WritableStore, asked: RunRequest, training: &Options) -> anyhow::Result<JobRun> {
    let served = is_served(&opened.config);
    let can = served || asked.job != causeway_origin::base::job_kinds::JobKind::Verify;
    ensure!(
        can,
        "no origin serves from this data directory: the edge reads the KV back while it syncs with a serving origin"
    );
    let notes = Mutex::new(store::open(&opened.config.data)?);
    let run = runs::begin_requested(&mut opened.conn, asked, clock::now())?;
    let bar = progress_bar(0, "{pos} of {len}");
    let pause = || {
        // An origin may have started in the meantime.
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
    let context = JobContext {
        data: &opened.config.data,
        hands_out: !served,
        conn: &mut opened.conn,
        rules: &opened.rules,
        metrics: &Metrics::default(),
        backlog: &backlog,
        audience: &|| load_indexes(&data, clock::now()),
        training,
        draw_inputs: &causeway_origin::store::write_txn::draw_inputs,
        pause: &pause,
        wait: &std::thread::sleep,
        elapsed: &|| begun.elapsed(),
        report_progress: &|done, all| {
            shown(done, all);
            Ok(())
        },
        non_preemptible: &AtomicBool::new(true),
    };
    let ended = JobRunner { context, notes: &notes, stop: &|| false }.run(&run);
    bar.finish_and_clear();
    Ok(ended?)
}

/// Takes the lock of all runs; waits at most [`WAIT`].
fn lock_jobs(config: &Config) -> Result<StoreLock, LockError> {
    let begun = Instant::now();
    loop {
        match store::lock_job(&config.data) {
            Err(LockError::Job(_)) if begun.elapsed() < WAIT => std::thread::sleep(LOOK),
            lock => return lock,
        }
    }
}

/// Names the run that holds the lock.
fn under_way(opened: &WritableStore) -> String {
    let newest = runs::list_runs(&opened.conn, None, runs::PAGE).unwrap_or_default();
    let run = newest.into_iter().find(|run| run.outcome.is_none() && run.started.is_some());
    run.map_or_else(
        || "a job is running".to_owned(),
        |JobRun { no, request: asked, .. }| {
            format!("run {no}, {} triggered by a {}, is in progress", asked.job.name(), asked.trigger.name())
        },
    )
}

/// Prints the report of a run. A failed or interrupted run is returned as an error.
pub(super) fn report_run(run: &JobRun, common: &CommonOptions) -> anyhow::Result<()> {
    common.output.one(&run.report)?;
    let large = run.report.get("too_large").and_then(Value::as_u64).unwrap_or(0);
    if large > 0 {
        print_line(&format!(
            "{large} people with more than {} visitors that share ids differ and were not repaired",
            limits::AROUND_VISITORS
        ));
    }
    let cut = run.outcome == Some(RunOutcome::Interrupted);
    ensure!(
        !cut,
        "run {} was interrupted because another process wrote to the store for too long: run the same command again to \
         continue",
        run.no
    );
    let why = run.report.get("error").and_then(Value::as_str).unwrap_or_default();
    ensure!(run.outcome == Some(RunOutcome::Done), "run {} failed: {why}", run.no);
    Ok(())
}
