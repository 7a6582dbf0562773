//! Requests and answers of HTTP/1.1 with a `content-length`, over one connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context as _, Result, ensure};

/// Largest head of a request, in bytes.
const HEAD_BYTES: u64 = 64 * 1024;

/// A request.
#[derive(Debug, Default)]
pub struct HttpRequest {
    /// Method, in upper case.
    pub method: String,
    /// Path with query.
    pub target: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// The first value of a header; `name` in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Reads the next request of a connection, with a body of at most `most` bytes. `None` if the client closed it.
///
/// # Errors
/// The connection broke, or the bytes are not such a request.
pub fn read_request(stream: &mut BufReader<TcpStream>, most: usize) -> Result<Option<HttpRequest>> {
    let mut head = stream.by_ref().take(HEAD_BYTES);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().context("a request without a target")?);
    let mut request = HttpRequest { method: method.to_owned(), target: target.to_owned(), ..HttpRequest::default() };
    loop {
        let mut line = String::new();
        ensure!(head.read_line(&mut line)? > 0, "the head does not end");
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length: usize = request.header("content-length").unwrap_or("0").parse()?;
    ensure!(length <= most, "a body of {length} bytes");
    if request.header("expect") == Some("100-continue") {
        stream.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    request.body = vec![0; length];
    stream.read_exact(&mut request.body)?;
    Ok(Some(request))
}

/// Writes an answer of JSON.
///
/// # Errors
/// The connection broke.
pub fn write_answer(stream: &mut TcpStream, status: u16, headers: &str, json: &str) -> Result<()> {
    let length = json.len();
    let head = format!(
        "HTTP/1.1 {status} status\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n{json}"
    );
    Ok(stream.write_all(head.as_bytes())?)
}
