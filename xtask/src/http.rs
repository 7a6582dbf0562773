//! HTTP GET on loopback, which shows whether a server answers, without an HTTP library.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// The most bytes that are read of an answer, of which only the status line is used.
const ANSWER_BYTES: u64 = 64 * 1024;

/// The status of a GET on loopback; `None` without an answer within `timeout`.
pub(crate) fn get(port: u16, path: &str, timeout: Duration) -> Option<u16> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, timeout).ok()?;
    stream.set_read_timeout(Some(timeout)).ok()?;
    stream.set_write_timeout(Some(timeout)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    // An error after the status line does not matter.
    let _ = stream.take(ANSWER_BYTES).read_to_end(&mut answer);
    status(&answer)
}

fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

/// Checks that each wanted port is free and finds a free one for each 0; all are different.
///
/// Each port has the flag that chooses another one, for the message; the flag of an automatic port is empty.
///
/// # Errors
/// A wanted port is taken.
pub(crate) fn free_ports<const N: usize>(wanted: [(u16, &str); N]) -> Result<[u16; N]> {
    // All listeners stay open until the last port is found, so that the system returns none twice.
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for (port, (wanted, flag)) in ports.iter_mut().zip(wanted) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, wanted)).with_context(|| {
            format!(
                "port {wanted} is taken: stop what listens there, or choose another with {flag} (0 finds a free one)"
            )
        })?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn status_lines() {
        assert_eq!(status(b"HTTP/1.1 200 OK\r\n\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.1 503 \r\n"), Some(503));
        assert_eq!(status(b"SSH-2.0-x\r\n"), None);
        assert_eq!(status(b""), None);
    }
}
