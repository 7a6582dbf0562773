//! Debian's redis-server on a free port, and the part of its protocol (RESP 2) that the bench needs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use causeway_shared::facts::actions::{ActionQuestion, ActionType, AdAction, AdEntity, AdLevel, Counts};
use tempfile::TempDir;

/// Time for the server to answer for the first time.
const START: Duration = Duration::from_secs(10);

/// A server without persistence; a drop ends it.
#[derive(Debug)]
pub(crate) struct Redis {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Drop for Redis {
    fn drop(&mut self) {
        // An error means that the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Redis {
    pub(crate) fn start() -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start redis-server: install Debian's package redis-server")?;
        Ok(Self { child, port, _folder: folder })
    }

    /// A connection to an empty server.
    pub(crate) fn connect(&self) -> Result<Connection> {
        let start = Instant::now();
        loop {
            if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) {
                stream.set_nodelay(true)?;
                let mut connection = Connection { reader: BufReader::new(stream) };
                ensure!(connection.ask(b"FLUSHALL\r\n", 1)? == [0], "redis-server did not empty itself");
                return Ok(connection);
            }
            ensure!(start.elapsed() < START, "redis-server does not answer after {} s", START.as_secs());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    /// Stores one sorted set for each entity: its impressions by minute.
    pub(crate) fn fill(&mut self, actions: &[AdAction]) -> Result<()> {
        let impressions = || actions.iter().filter(|action| action.action_type == ActionType::IMPRESSION);
        let mut text = Vec::new();
        for action in impressions() {
            for level in AdLevel::ALL {
                let member = (action.insertion, action.view_type, action.minute.day());
                let key = key(level, action.entity.at(level));
                // A blank of the `Debug` form would end the argument.
                let member = format!("{member:?}").replace(' ', "");
                write!(text, "ZADD {key} {} {member}\r\n", action.minute.0)?;
            }
        }
        self.ask(&text, impressions().count() * AdLevel::ALL.len()).map(drop)
    }

    /// Counts with one pipeline of ZCOUNTs, four for each candidate.
    pub(crate) fn count(&mut self, candidates: &[AdEntity], question: &ActionQuestion<'_>) -> Result<Vec<Counts>> {
        let mut text = Vec::new();
        for entity in candidates {
            for level in AdLevel::ALL {
                write!(text, "ZCOUNT {} {} ({}\r\n", key(level, entity.at(level)), question.from.0, question.to.0)?;
            }
        }
        let counts = self.ask(&text, candidates.len() * AdLevel::ALL.len())?;
        Ok(counts.as_chunks::<4>().0.to_vec())
    }

    /// Sends commands and reads `answers` answers: a number, or 0 for `+OK`.
    fn ask(&mut self, text: &[u8], answers: usize) -> Result<Vec<u32>> {
        self.reader.get_mut().write_all(text)?;
        let mut line = String::new();
        let mut read = Vec::with_capacity(answers);
        for _ in 0..answers {
            line.clear();
            self.reader.read_line(&mut line)?;
            match line.trim_end().split_at_checked(1) {
                Some((":", number)) => read.push(number.parse()?),
                Some(("+", _)) => read.push(0),
                _ => bail!("redis-server answers {line:?}"),
            }
        }
        Ok(read)
    }
}

fn key(level: AdLevel, code: u32) -> String {
    format!("{level:?}:{code}")
}
