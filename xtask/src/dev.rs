//! `cargo xtask dev`: runs the origin and the edge on this machine until Ctrl-C.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::json;

use crate::process::{Group, TICK};
use crate::project::Project;
use crate::stop::Stop;
use crate::world::{Data, write_private};
use crate::{edge_build, http, npm, origin_build, steps, tools};

/// Interval of the cron. The platform's is a minute; a shorter one shows its repairs sooner.
const CRON: Duration = Duration::from_secs(5);
const CRON_PATH: &str = "/cdn-cgi/handler/scheduled?cron=*+*+*+*+*";
/// Time for the origin and for wrangler to answer for the first time.
const START: Duration = Duration::from_secs(60);
/// Time to stop. The origin waits at most 10 seconds for calls to end, then folds for at most 10 seconds.
const GRACE: Duration = Duration::from_secs(25);
/// Lines of a log that are shown when its program ends by itself.
const TAIL: usize = 20;
/// Variables that would make the development origin use the data of another origin.
const FOREIGN: [&str; 4] = ["CAUSEWAY_CONFIG", "CAUSEWAY_DATA", "CAUSEWAY_KEYS", "CAUSEWAY_KEYS_FILE"];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Port of the edge; 0 finds a free one.
    #[arg(long, default_value_t = 8787)]
    edge_port: u16,
    /// Port of the origin; 0 finds a free one.
    #[arg(long, default_value_t = 8788)]
    origin_port: u16,
    /// Folder for configuration, keys, the store, the edge's KV and queues, and logs. [default: .dev in the checkout]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Empty the data folder first.
    #[arg(long)]
    fresh: bool,
    /// File to write when both answer, removed at the end: JSON with URLs, token, explain key and process ids.
    #[arg(long, value_name = "F")]
    ready_file: Option<PathBuf>,
    /// Stop also when standard input ends, so that a script that is killed leaves no process.
    #[arg(long)]
    until_stdin_ends: bool,
}

pub(crate) fn run(project: &Project, options: &Options, stop: &Stop) -> Result<()> {
    // Ports and folder are checked before a build of minutes.
    let flags = [(options.edge_port, "--edge-port"), (options.origin_port, "--origin-port")];
    http::free_ports(flags)?;
    let folder = options.data.clone().unwrap_or_else(|| project.root.join(".dev"));
    let data = Data::open(&folder, options.fresh)?;
    // This process holds the folder's lock, so an existing ready file belongs to a killed run.
    remove_stale(options.ready_file.as_deref())?;
    if options.until_stdin_ends {
        watch_stdin(stop);
    }
    let binary = prepare(project, stop)?;
    let [edge_port, origin_port, inspector_port] = http::free_ports([flags[0], flags[1], (0, "")])?;
    let world = World { project, data: &data, binary, edge_port, origin_port, inspector_port };
    let mut running = world.start(stop)?;
    if let Some(path) = &options.ready_file {
        write_private(path, &format!("{:#}\n", world.ready(&running)))?;
    }
    world.print(&running);
    let outcome = world.watch(&mut running, stop);
    // The edge stops first, because it calls the origin.
    running.edge.stop(GRACE);
    running.origin.stop(GRACE);
    remove_stale(options.ready_file.as_deref())?;
    outcome?;
    eprintln!("stopped");
    Ok(())
}

/// Installs tools and builds; returns the origin's binary. Two variables of `cargo xtask test` skip both.
fn prepare(project: &Project, stop: &Stop) -> Result<PathBuf> {
    if let (Some(binary), Some(_)) = (std::env::var_os("CAUSEWAY_ORIGIN_BIN"), std::env::var_os("CAUSEWAY_EDGE_BUILD"))
    {
        return Ok(binary.into());
    }
    tools::check_machine()?;
    tools::ensure_all(project, stop)?;
    let binary = origin_build::build(project, stop)?;
    edge_build::build(project, stop)?;
    Ok(binary)
}

fn watch_stdin(stop: &Stop) {
    let stop = stop.clone();
    std::thread::spawn(move || {
        // The end of the input and an error both mean that the parent is gone.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stop.set();
    });
}

fn remove_stale(path: Option<&Path>) -> Result<()> {
    match path.map(std::fs::remove_file) {
        Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("cannot remove the ready file")
        }
        _ => Ok(()),
    }
}

struct World<'a> {
    project: &'a Project,
    data: &'a Data,
    binary: PathBuf,
    edge_port: u16,
    origin_port: u16,
    inspector_port: u16,
}

struct Running {
    origin: Group,
    edge: Group,
    admin_token: String,
    explain_key: String,
}

impl World<'_> {
    fn start(&self, stop: &Stop) -> Result<Running> {
        let configuration = self.data.configuration()?;
        let causeway = || {
            let mut command = self.project.command(&self.binary);
            for name in FOREIGN {
                command.env_remove(name);
            }
            command.env("CAUSEWAY_LISTEN", format!("127.0.0.1:{}", self.origin_port));
            command.arg("--config").arg(&configuration);
            command
        };
        let admin_token = self.data.keys_and_token(&causeway, stop)?;
        self.data.apply_ads(&causeway, stop)?;
        let origin_url = self.origin_url();
        let own = [("ORIGIN_URL", &*origin_url), ("EDGE_NAME", "dev"), ("CAUSEWAY_ADMIN_TOKEN", &*admin_token)];
        let (variables, explain_key) = self.data.edge_variables(&causeway, &own, stop)?;

        let mut origin = self.launch(causeway().arg("serve"), "origin.log")?;
        self.wait("the origin", &mut origin, self.origin_port, "origin.log", stop)?;
        let mut edge = self.launch(&mut self.wrangler(&variables)?, "edge.log")?;
        self.wait("the edge", &mut edge, self.edge_port, "edge.log", stop)?;
        Ok(Running { origin, edge, admin_token, explain_key })
    }

    fn wrangler(&self, variables: &Path) -> Result<Command> {
        let mut command = self.project.command(npm::node(self.project)?);
        command
            .envs(tools::env(self.project)?)
            // By default, wrangler stores logs and a registry of workers in the user's home.
            .env("WRANGLER_LOG_PATH", self.data.path("wrangler-logs"))
            .env("WRANGLER_REGISTRY_PATH", self.data.path("wrangler-registry"))
            .env("NO_COLOR", "1")
            .arg(npm::wrangler(self.project))
            .args(["dev", "--local", "--ip", "127.0.0.1", "--port", &self.edge_port.to_string()])
            .args(["--inspector-ip", "127.0.0.1", "--inspector-port", &self.inspector_port.to_string()])
            .args(["--show-interactive-dev-session=false", "--test-scheduled", "--persist-to"])
            .arg(self.data.path("wrangler"))
            .arg("--env-file")
            .arg(variables);
        Ok(command)
    }

    fn launch(&self, command: &mut Command, log: &str) -> Result<Group> {
        let path = self.data.path(log);
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Group::start(command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file))
    }

    /// Waits until `/healthz` answers 200.
    fn wait(&self, who: &str, group: &mut Group, port: u16, log: &str, stop: &Stop) -> Result<()> {
        let line = steps::Line::start(&format!("starting {who}"));
        let start = Instant::now();
        while http::get(port, "/healthz", Duration::from_secs(2)) != Some(200) {
            stop.check()?;
            if let Some(status) = group.ended()? {
                line.clear();
                self.show_tail(log);
                bail!("{who} did not start ({status}): see {}", self.data.path(log).display());
            }
            // Wrangler continues to run after a failed build, to build again after a change of a file.
            if self.log(log).contains("Build failed with") {
                line.clear();
                self.show_tail(log);
                bail!("{who} could not be bundled: see {}", self.data.path(log).display());
            }
            if start.elapsed() > START {
                line.clear();
                self.show_tail(log);
                bail!(
                    "{who} does not answer /healthz after {} s: see {}",
                    START.as_secs(),
                    self.data.path(log).display()
                );
            }
            line.tick("");
            std::thread::sleep(TICK);
        }
        line.done();
        Ok(())
    }

    /// Fires the cron until a signal arrives or the edge ends.
    ///
    /// The end of the origin is reported only, because the edge serves without it.
    fn watch(&self, running: &mut Running, stop: &Stop) -> Result<()> {
        self.fire_cron(stop);
        let mut origin_ended = false;
        while !stop.is_set() {
            if let Some(status) = running.edge.ended()? {
                self.show_tail("edge.log");
                bail!("the edge ended by itself ({status}): see {}", self.data.path("edge.log").display());
            }
            if !origin_ended && let Some(status) = running.origin.ended()? {
                origin_ended = true;
                self.show_tail("origin.log");
                eprintln!("the origin ended by itself ({status}); the edge continues without it");
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Fires the cron in a thread, so that a slow answer does not delay Ctrl-C. The thread ends with this process.
    fn fire_cron(&self, stop: &Stop) {
        let (port, stop) = (self.edge_port, stop.clone());
        std::thread::spawn(move || {
            while !stop.is_set() {
                // The edge's log has the failures of the cron.
                let _ = http::get(port, CRON_PATH, CRON);
                std::thread::sleep(CRON);
            }
        });
    }

    fn ready(&self, running: &Running) -> serde_json::Value {
        json!({
            "edge_url": format!("http://127.0.0.1:{}", self.edge_port),
            "origin_url": self.origin_url(),
            "admin_token": running.admin_token,
            "explain_key": running.explain_key,
            "data": self.data.folder,
            "pids": { "origin": running.origin.id(), "edge": running.edge.id() },
        })
    }

    fn print(&self, running: &Running) {
        println!("demo page    http://localhost:{}/demo", self.edge_port);
        println!(
            "edge         http://localhost:{}  (publisher `demo`; `strict` at http://strict.localhost:{0})",
            self.edge_port
        );
        println!("origin       {}", self.origin_url());
        println!("admin token  {}", running.admin_token);
        println!("explain key  {}", running.explain_key);
        println!("data, logs   {}", self.data.folder.display());
        println!("The cron fires every {} s here, every minute on the platform. Ctrl-C stops both.", CRON.as_secs());
    }

    fn origin_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.origin_port)
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.data.path(name)).unwrap_or_default()
    }

    fn show_tail(&self, log: &str) {
        let text = self.log(log);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        for line in lines.iter().skip(lines.len().saturating_sub(TAIL)) {
            eprintln!("  {line}");
        }
    }
}
