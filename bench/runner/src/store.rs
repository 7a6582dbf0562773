//! Stand-ins for the platform's KV and queue: the HTTP services of workerd's bindings. They answer from memory, and
//! count the messages of the queue.

use std::collections::HashMap;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};

use crate::http1::{Connection, Message};

/// The answer that `send` and `sendBatch` of a queue binding expect.
const QUEUED: &str = r#"{"metadata":{"metrics":{"backlogCount":0,"backlogBytes":0}}}"#;

/// A service on a free port of this machine. Its threads end with this process.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    values: HashMap<String, String>,
    /// Complete answers by key.
    answers: HashMap<String, Vec<u8>>,
    messages: AtomicU64,
    bytes: AtomicU64,
}

/// The messages that the queue has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Store {
    /// Serves these values.
    pub(crate) fn serve(values: HashMap<String, String>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port for the KV's stand-in")?;
        let port = listener.local_addr()?.port();
        let answers = values.iter().map(|(key, value)| (key.clone(), answer(200, value))).collect();
        let (messages, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Arc::new(Shared { values, answers, messages, bytes });
        let service = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&service);
                // workerd opens a broken connection again.
                std::thread::spawn(move || shared.converse(stream));
            }
        });
        Ok(Self { port, shared })
    }

    pub(crate) fn queued(&self) -> Queued {
        let count = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        Queued { messages: count(&self.shared.messages), bytes: count(&self.shared.bytes) }
    }
}

impl Shared {
    fn converse(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut connection = Connection::new(stream);
        while let Some(message) = connection.receive()? {
            let answer = self.answer(&message);
            connection.send(&answer)?;
        }
        Ok(())
    }

    fn answer(&self, message: &Message<'_>) -> Vec<u8> {
        let (method, target) = message.request_line().unwrap_or_default();
        let path = target.split('?').next().unwrap_or_default();
        match (method, path) {
            ("GET", _) => self.answers.get(&key(path)).cloned().unwrap_or_else(|| answer(404, "")),
            ("POST", "/bulk/get") => self.bulk(message.body),
            ("POST", "/message") => self.queue(1, message.body.len() as u64),
            // Headers have the number of the messages and their total bytes; the body has the messages in JSON.
            ("POST", "/batch") => {
                let number = |name| message.headers(name).next().and_then(|number| number.parse().ok());
                match (number("cf-queue-batch-count"), number("cf-queue-batch-bytes")) {
                    (Some(messages), Some(bytes)) => self.queue(messages, bytes),
                    _ => answer(400, ""),
                }
            }
            _ => answer(404, ""),
        }
    }

    fn queue(&self, messages: u64, bytes: u64) -> Vec<u8> {
        self.bytes.fetch_add(bytes, Ordering::Release);
        self.messages.fetch_add(messages, Ordering::Release);
        answer(200, QUEUED)
    }

    fn bulk(&self, body: &[u8]) -> Vec<u8> {
        let asked: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let keys = asked.get("keys").and_then(serde_json::Value::as_array).into_iter().flatten();
        let found: serde_json::Map<_, _> = keys
            .filter_map(|key| key.as_str())
            .map(|key| (key.to_owned(), self.values.get(key).map(String::as_str).into()))
            .collect();
        answer(200, &serde_json::Value::Object(found).to_string())
    }
}

/// The key in a path, which workerd percent-encodes.
fn key(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.trim_start_matches('/').bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).unwrap_or_default() as u8;
        bytes.push(if byte == b'%' { digit(rest.next()) << 4 | digit(rest.next()) } else { byte });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn answer(status: u16, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} .\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_percent_encoded_or_not() {
        assert_eq!(key("/v%3Abench:0a-b%2f%C3%A9"), "v:bench:0a-b/é");
    }
}
