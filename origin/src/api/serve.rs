//! `causeway serve`: from a configuration to a running origin, and back to a stopped one.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::api::listener::HttpListener;
use crate::api::{self, ApiState, HttpLimits, OpenStore};
use crate::audience::{Audience, index_follower};
use crate::base::clock;
use crate::base::config::Config;
use crate::base::key_file::{self, KeyError};
use crate::base::metrics::Metrics;
use crate::ingest::start_error::StartError;
use crate::jobs::thread::JobsHandle;
use crate::kv::bulk::client::BulkClient;
use crate::outbox::unconfigured_tenants;
use crate::pipeline::bulk_publisher::BulkPublisher;
use crate::pipeline::writer::Writer;
use crate::store::journal::ErasureJournal;
use crate::store::tenants::Tenants;
use crate::store::write_txn::TxnRules;
use crate::store::{self, LockError, OpenError, StoreError};
use crate::views::readers::ReaderPool;

/// The reason for which the origin does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Keys are missing or weak.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The data directory is locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The store, its log or its journal cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread over the store cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The address is not available.
    #[error("cannot listen on {address}: is another program there? choose another with `listen` or CAUSEWAY_LISTEN")]
    Listen {
        /// The address.
        address: String,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The ready file cannot be written.
    #[error("cannot write the ready file {}", path.display())]
    Ready {
        /// The file.
        path: std::path::PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A bug ended a thread of the program. Acknowledged facts are durable, and the next start folds them.
    #[error("the thread `{0}` stopped because of a bug: restart the origin and report the log")]
    Ended(String),
    /// The operating system refused something else.
    #[error("the operating system refused")]
    System(#[from] std::io::Error),
}

/// Interval of the check that all threads live.
const LOOK: Duration = Duration::from_secs(1);

/// Files that the origin itself has open: up to 64 readers with three files each, and those of jobs.
const OWN_FILES: u64 = 512;
/// Least number of connections, also under a lower limit of open files.
const FEWEST_CONNECTIONS: usize = 16;

/// Signal of a write beyond RLIMIT_FSIZE; the same number on every Linux.
const SIGXFSZ: i32 = 25;

/// Runs until SIGTERM or SIGINT, or until a writing thread ends, and then finishes the requests in progress.
///
/// # Errors
/// [`ServeError`] before the first sync; [`ServeError::Ended`] later.
pub async fn serve(config: Config, ready_file: Option<&Path>) -> Result<(), ServeError> {
    let keys = key_file::load_checked(&config.keys, &config.edge)?;
    let bulk = match &config.publish {
        Some(settings) => {
            Some((BulkClient::new(settings.clone(), key_file::load_platform_token(&config.keys)?), settings.lanes))
        }
        None => None,
    };
    if key_file::is_exposed(&config.keys) {
        tracing::warn!(file = %config.keys.display(), "others than the owner can read the key file: chmod 600 it");
    }
    let _lock = store::lock_folder(&config.data)?;
    // With a handler, a file at the size limit of the process is a failed write and does not end the process.
    let _limited = signal(SignalKind::from_raw(SIGXFSZ))?;
    let listen = |source| ServeError::Listen { address: config.listen.clone(), source };
    let listener = TcpListener::bind(&config.listen).await.map_err(listen)?;
    let url = format!("http://{}", listener.local_addr().map_err(listen)?);

    let drain = config.drain;
    let limits = HttpLimits { connections: connections_with_files(config.http.connections), ..config.http.clone() };
    let app = Arc::new(ApiState::new(config, keys));
    let (stop, stopping) = watch::channel(false);
    let listener = HttpListener::new(listener, limits, Arc::clone(&app.metrics));
    let server = tokio::spawn(listener.serve(api::router(Arc::clone(&app)), stopping, drain));
    let threads = match open(&app).await {
        Ok(threads) => threads,
        Err(e) => {
            server.abort();
            return Err(e);
        }
    };
    let _ready = store::lock_ready(&app.config.data)?;
    let publisher = BulkPublisher::default();
    if let Some(bulk) = bulk {
        start_publisher(&publisher, bulk, &app)?;
    }
    announce_url(&url, ready_file)?;
    let delays = tokio::spawn(warn_of_delays(Arc::clone(&app)));
    let ended = tokio::select! {
        asked = wait_for_signal() => asked.map(|()| None)?,
        thread = one_ended(&threads, &app.metrics) => Some(thread),
    };
    delays.abort();
    if let Some(thread) = &ended {
        tracing::error!(thread, "a thread ended without which nothing is taken: the origin stops");
    }

    tracing::info!("stopping: what is under way is finished");
    stop.send_replace(true);
    publisher.stop();
    // Requests that wait for the writer hold handles and are finished; new requests are refused.
    app.drain();
    match server.await {
        Ok(true) => {}
        Ok(false) => tracing::warn!("some connections did not end in time and are cut"),
        Err(e) => tracing::error!(error = %e, "the listener failed"),
    }
    // The threads end after the last request dropped its handle, and after they committed and folded their input.
    let joined = tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| drop(thread.join())));
    if tokio::time::timeout(drain, joined).await.is_err() {
        tracing::warn!(
            "not all could be folded in time; what was acknowledged is durable, and folded at the next start"
        );
    }
    tracing::info!("stopped");
    ended.map_or(Ok(()), |thread| Err(ServeError::Ended(thread)))
}

/// Waits until a writing thread has ended, and returns its name: without it, the origin would take calls and answer
/// none. An ended thread of another kind is logged and counted once, because the origin can serve without it.
async fn one_ended(threads: &[JoinHandle<()>; 4], metrics: &Metrics) -> String {
    let mut looks = tokio::time::interval(LOOK);
    let name = |thread: &JoinHandle<()>| thread.thread().name().unwrap_or_default().to_owned();
    let [log, store, others @ ..] = threads;
    let mut living = others.each_ref().map(Some);
    loop {
        looks.tick().await;
        if let Some(ended) = [log, store].into_iter().find(|thread| thread.is_finished()) {
            return name(ended);
        }
        for ended in living.iter_mut().filter_map(|thread| thread.take_if(|thread| thread.is_finished())) {
            metrics.threads_ended.inc();
            tracing::error!(
                thread = name(ended),
                "a thread stopped because of a bug: restart the origin and report the log"
            );
        }
    }
}

/// Raises the limit of open files, as far as the system allows, for the connections and the origin's own files. Returns
/// the number of connections that the limit allows: more connections would take the files that the store needs.
fn connections_with_files(connections: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let needed = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OWN_FILES);
    let mut allowed = limit.current.unwrap_or(u64::MAX);
    if allowed < needed {
        let raised = limit.maximum.map_or(needed, |most| most.min(needed));
        if setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit }).is_ok() {
            allowed = raised;
        }
    }
    if allowed >= needed {
        return connections;
    }
    let enough = usize::try_from(allowed.saturating_sub(OWN_FILES)).unwrap_or(connections).max(FEWEST_CONNECTIONS);
    tracing::warn!(allowed, needed, connections = enough, "too few open files are allowed: raise LimitNOFILE");
    enough
}

/// Logs once a minute which facts and KV keys wait for too long, for installations without a metrics reader.
async fn warn_of_delays(app: Arc<ApiState>) {
    let mut minutes = tokio::time::interval(Duration::from_secs(60));
    loop {
        minutes.tick().await;
        api::measure_process(&app).await;
        app.metrics.warn_of_delays(clock::now());
    }
}

/// Opens the store, migrates its schema and starts the threads.
pub(crate) async fn open(app: &Arc<ApiState>) -> Result<[JoinHandle<()>; 4], ServeError> {
    let app = Arc::clone(app);
    let opened = tokio::task::spawn_blocking(move || {
        let config = &app.config;
        let mut conn = store::open(&config.data)?;
        crate::ingest::marker::tie_files(&config.data, &conn)?;
        let tenants = Tenants::open(&conn, &config.edge, &app.keys)?;
        let journal = ErasureJournal::open(&config.data).map_err(OpenError::from)?;
        let rules = Arc::new(TxnRules::of(config, tenants, journal));
        let in_log = crate::ingest::log::newest_record(&config.data, &conn)?;
        crate::pipeline::replay::replay_journal(&mut conn, &rules, crate::store::write_txn::draw_inputs()?, in_log)?;
        unconfigured_tenants::move_waiting_keys(&conn, &rules.tenants, clock::now())?;
        crate::pipeline::take_up::take_up(&mut conn, &rules, crate::store::write_txn::draw_inputs)?;
        let metrics = Arc::clone(&app.metrics);
        let (writer, backlog, [log, store]) =
            Writer::start(conn, &config.data, Arc::clone(&rules), Arc::clone(&metrics), config.most_unfolded)?;
        let audience = Audience::default();
        let (jobs, working) = JobsHandle::start(
            &config.data,
            Arc::clone(&rules),
            metrics,
            backlog.clone(),
            audience.clone(),
            config.jobs,
        )?;
        let following = index_follower::start_follower(&config.data, audience.clone())?;
        let [readers, measuring] =
            [config.readers, 1].map(|places| ReaderPool::new(&config.data, backlog.clone(), places));
        app.metrics.serving_ms.set(clock::steady_now());
        app.go_live(OpenStore { rules, readers, measuring, jobs, audience }, writer);
        Ok::<_, ServeError>([log, store, working, following])
    });
    opened.await.map_err(std::io::Error::other)?
}

/// Starts publishing in bulk. Its thread is not waited for at a stop: leases of unfinished calls expire.
fn start_publisher(
    publisher: &BulkPublisher,
    bulk: (BulkClient, usize),
    app: &Arc<ApiState>,
) -> Result<(), ServeError> {
    let Some(live) = app.live() else { return Ok(()) };
    let state = Arc::clone(app);
    let writer = Arc::new(move || state.writer());
    publisher.start(&app.config.data, bulk, Arc::clone(&live.rules), Arc::clone(&app.metrics), writer)?;
    Ok(())
}

/// Reports the address of the origin, in the log and for scripts in a file.
fn announce_url(url: &str, ready_file: Option<&Path>) -> Result<(), ServeError> {
    tracing::info!(url, "ready");
    let Some(path) = ready_file else {
        return Ok(());
    };
    let failed = |source| ServeError::Ready { path: path.to_owned(), source };
    let part = path.with_extension("part");
    let text = serde_json::json!({ "url": url }).to_string();
    std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, path)).map_err(failed)
}

async fn wait_for_signal() -> Result<(), ServeError> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_panics_is_named_and_those_that_live_are_not() {
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(run).unwrap()
        };
        let live = |name: &str| {
            let (alive, waits) = std::sync::mpsc::channel::<()>();
            (alive, spawn(name, Box::new(move || waits.recv().unwrap_or_default())))
        };
        let panicked = async |name: &str| {
            let thread = spawn(name, Box::new(|| panic!("a fault")));
            while !thread.is_finished() {
                tokio::task::yield_now().await;
            }
            thread
        };
        let ([(_log, log), (_store, store), (_audience, audience)], metrics) =
            (["log", "store", "audience"].map(live), Metrics::default());
        let mut threads = [log, store, panicked("jobs").await, audience];
        // Two checks: the ended thread of the jobs is counted once, and the origin goes on without it.
        assert!(tokio::time::timeout(LOOK + LOOK / 20, one_ended(&threads, &metrics)).await.is_err());
        assert_eq!(metrics.threads_ended.get(), 1);
        threads[0] = panicked("log").await;
        assert_eq!(one_ended(&threads, &metrics).await, "log");
    }
}
