//! One workerd process: its configuration in a temporary folder, its ports, its end.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::cpu::Cpu;

/// Time for a process to compile its modules and to listen.
const START: Duration = Duration::from_secs(30);
/// The date of wrangler.toml.
const COMPATIBILITY_DATE: &str = "2026-11-01";

/// A file of a worker: its import name and its path.
#[derive(Debug, Clone)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
}

/// One worker of a process, with its own socket.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    /// The modules; the first is the entry.
    pub(crate) modules: Vec<Module>,
    pub(crate) kv: bool,
    pub(crate) queue: bool,
    pub(crate) texts: Vec<(&'static str, String)>,
}

/// A running process; a drop ends it and removes its folder.
#[derive(Debug)]
pub(crate) struct Workerd {
    child: Child,
    /// One port for each service, in their order.
    pub(crate) ports: Vec<u16>,
    _folder: TempDir,
}

impl Workerd {
    /// Starts a process that serves each service on a free port; `store` is the port of KV and queue.
    pub(crate) fn start(program: &Path, services: &[Service], store: u16) -> Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let configuration = folder.path().join("config.capnp");
        std::fs::write(&configuration, write(services, store, folder.path())?)?;
        let mut child = Command::new(program)
            .args(["serve", "--control-fd=1"])
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let told = child.stdout.take().context("workerd has no output")?;
        let mut workerd = Self { child, ports: Vec::new(), _folder: folder };
        workerd.ports = ports(told, services.len())?;
        Ok(workerd)
    }

    pub(crate) fn cpu(&self) -> Cpu {
        Cpu::of(self.child.id())
    }
}

impl Drop for Workerd {
    fn drop(&mut self) {
        // SIGTERM would wait for persistent connections. An error means that the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the port of each socket from the output of workerd; a thread continues to read the pipe until the process
/// ends.
fn ports(told: std::process::ChildStdout, sockets: usize) -> Result<Vec<u16>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(told).lines().map_while(Result::ok) {
            match listening(&line) {
                // The receiver is gone after all ports are known.
                Some(told) => drop(sender.send(told)),
                // A line of the worker's log, which is empty without a fault.
                None => eprintln!("workerd: {line}"),
            }
        }
    });
    let mut ports = vec![0; sockets];
    for _ in 0..sockets {
        let Ok((socket, port)) = receiver.recv_timeout(START) else {
            bail!("workerd does not listen after {} s: see its output above", START.as_secs());
        };
        *ports.get_mut(socket).context("workerd names an unknown socket")? = port;
    }
    Ok(ports)
}

fn listening(line: &str) -> Option<(usize, u16)> {
    let told: serde_json::Value = serde_json::from_str(line).ok()?;
    let socket = told.get("socket")?.as_str()?.strip_prefix('s')?.parse().ok()?;
    Some((socket, u16::try_from(told.get("port")?.as_u64()?).ok()?))
}

/// Writes the configuration and copies the modules next to it, because it embeds files by relative paths.
fn write(services: &[Service], store: u16, folder: &Path) -> Result<String> {
    let mut text = String::from("using Workerd = import \"/workerd/workerd.capnp\";\n\n");
    let (mut names, mut sockets, mut workers) = (String::new(), String::new(), String::new());
    for (i, service) in services.iter().enumerate() {
        writeln!(names, "    (name = \"w{i}\", worker = .w{i}),")?;
        writeln!(sockets, "    (name = \"s{i}\", address = \"127.0.0.1:0\", http = (), service = \"w{i}\"),")?;
        write!(workers, "\nconst w{i} :Workerd.Worker = (\n{});\n", worker(i, service, folder)?)?;
    }
    for name in ["kv", "queue"] {
        writeln!(names, "    (name = \"{name}\", external = (address = \"127.0.0.1:{store}\", http = ())),")?;
    }
    write!(text, "const config :Workerd.Config = (\n  services = [\n{names}  ],\n  sockets = [\n{sockets}  ],\n);\n")?;
    text.push_str(&workers);
    Ok(text)
}

fn worker(i: usize, service: &Service, folder: &Path) -> Result<String> {
    let mut text = String::from("  modules = [\n");
    for (j, module) in service.modules.iter().enumerate() {
        let copy = format!("w{i}m{j}");
        std::fs::copy(&module.file, folder.join(&copy))
            .with_context(|| format!("cannot read {}", module.file.display()))?;
        let kind = match module.file.extension().and_then(|e| e.to_str()) {
            Some("wasm") => "wasm",
            Some("html") => "text",
            _ => "esModule",
        };
        writeln!(text, "    (name = \"{}\", {kind} = embed \"{copy}\"),", module.name)?;
    }
    write!(text, "  ],\n  compatibilityDate = \"{COMPATIBILITY_DATE}\",\n  bindings = [\n")?;
    if service.kv {
        text.push_str("    (name = \"PROFILES\", kvNamespace = \"kv\"),\n");
    }
    if service.queue {
        text.push_str("    (name = \"FACTS\", queue = \"queue\"),\n");
    }
    for (name, value) in &service.texts {
        let quoted = serde_json::to_string(value)?;
        writeln!(text, "    (name = \"{name}\", text = {quoted}),")?;
    }
    text.push_str("  ],\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::listening;

    #[test]
    fn the_line_that_names_a_port() {
        assert_eq!(listening(r#"{"event":"listen","socket":"s1","port":35745}"#), Some((1, 35745)));
        assert_eq!(listening("a line of the worker's own log"), None);
    }
}
