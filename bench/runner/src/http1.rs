//! HTTP/1.1 over one persistent connection, limited to the forms that workerd uses. The load generator needs it,
//! because its cost must be below the measured cost; the stand-ins of the platform's services use it too.

use std::io::{Read, Write};

use anyhow::{Context as _, Result, bail, ensure};

/// The most bytes of a message; the largest one is a bulk read of a few snapshots.
const MESSAGE_BYTES: usize = 1024 * 1024;

/// One side of a connection.
#[derive(Debug)]
pub(crate) struct Connection<S> {
    stream: S,
    buffer: Vec<u8>,
    filled: usize,
    /// End of the last message; later bytes belong to the next one.
    end: usize,
}

/// A message, borrowed from its connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    /// First line and headers, including the empty line.
    pub(crate) head: &'a [u8],
    pub(crate) body: &'a [u8],
}

impl Message<'_> {
    /// The status code of an answer.
    pub(crate) fn status(&self) -> Option<u16> {
        std::str::from_utf8(self.head.get(9..12)?).ok()?.parse().ok()
    }

    /// A request's method and target.
    pub(crate) fn request_line(&self) -> Option<(&str, &str)> {
        let line = self.head.split(|byte| *byte == b'\r').next()?;
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        Some((words.next()?, words.next()?))
    }

    /// The values of a header, by its name in lower case.
    pub(crate) fn headers<'b>(&'b self, name: &'b str) -> impl Iterator<Item = &'b str> {
        self.head.split(|byte| *byte == b'\n').filter_map(move |line| value_of(line, name))
    }
}

fn value_of<'a>(line: &'a [u8], name: &str) -> Option<&'a str> {
    let (own, value) = line.split_at_checked(name.len())?;
    let fits = own.eq_ignore_ascii_case(name.as_bytes());
    std::str::from_utf8(value.strip_prefix(b":").filter(|_| fits)?).ok().map(str::trim)
}

impl<S: Read + Write> Connection<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffer: vec![0; 64 * 1024], filled: 0, end: 0 }
    }

    pub(crate) fn send(&mut self, message: &[u8]) -> Result<()> {
        self.stream.write_all(message).context("the connection broke during a write")
    }

    /// Reads the next message; `None` if the other side closed the connection between messages.
    pub(crate) fn receive(&mut self) -> Result<Option<Message<'_>>> {
        self.buffer.copy_within(self.end..self.filled, 0);
        self.filled -= self.end;
        self.end = 0;
        let mut seen = 0;
        let head = loop {
            if let Some(head) = head_end(self.buffer.get(..self.filled).unwrap_or_default(), seen) {
                break head;
            }
            seen = self.filled.saturating_sub(3);
            if !self.fill()? {
                ensure!(self.filled == 0, "the connection closed in the middle of a message");
                return Ok(None);
            }
        };
        let message = Message { head: self.buffer.get(..head).unwrap_or_default(), body: &[] };
        ensure!(message.headers("transfer-encoding").next().is_none(), "a chunked message is not supported");
        let length: usize = match message.headers("content-length").next() {
            Some(length) => length.parse().context("the content-length is not a number")?,
            None => 0,
        };
        self.end = head + length;
        ensure!(self.end <= MESSAGE_BYTES, "a message of {} bytes is too long", self.end);
        while self.filled < self.end {
            ensure!(self.fill()?, "the connection closed in the middle of a body");
        }
        let (head, rest) = self.buffer.split_at(head);
        Ok(Some(Message { head, body: rest.get(..length).unwrap_or_default() }))
    }

    /// Sends a request and reads its answer.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> Result<Message<'_>> {
        self.send(request)?;
        self.receive()?.context("the connection closed before an answer")
    }

    fn fill(&mut self) -> Result<bool> {
        if self.filled == self.buffer.len() {
            let grown = self.buffer.len() * 2;
            if grown > 2 * MESSAGE_BYTES {
                bail!("a message is longer than {MESSAGE_BYTES} bytes");
            }
            self.buffer.resize(grown, 0);
        }
        let room = self.buffer.get_mut(self.filled..).unwrap_or_default();
        let read = self.stream.read(room).context("the connection broke during a read")?;
        self.filled += read;
        Ok(read > 0)
    }
}

/// The index after the empty line, searched from `from`.
fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(4).position(|four| four == b"\r\n\r\n").map(|at| from + at + 4)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    struct Pieces(Vec<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            to[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    impl Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn messages_come_in_any_pieces() {
        let pieces: Vec<&[u8]> =
            vec![b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: 5\r\n\r", b"\nhel", b"loHTTP/1.1 204 No\r\nx: 1\r\n\r\n"];
        let mut connection = Connection::new(Pieces(pieces));
        let first = connection.receive().unwrap().unwrap();
        assert_eq!((first.status(), first.body), (Some(200), &b"hello"[..]));
        let second = connection.receive().unwrap().unwrap();
        assert_eq!((second.status(), second.body.len()), (Some(204), 0));
        assert_eq!(second.headers("x").next(), Some("1"));
        assert!(connection.receive().unwrap().is_none());
    }

    #[test]
    fn a_cut_message_is_an_error() {
        let cut = |piece| Connection::new(Pieces(vec![piece])).receive().map(|_| ()).unwrap_err().to_string();
        assert!(cut(b"HTTP/1.1 200 OK\r\nconte").contains("middle of a message"));
        assert!(cut(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc").contains("middle of a body"));
        assert!(cut(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").contains("chunked"));
    }

    #[test]
    fn a_request_line() {
        let message = Message { head: b"GET /v%3Aa?urlencoded=true HTTP/1.1\r\nhost: x\r\n\r\n", body: b"" };
        assert_eq!(message.request_line(), Some(("GET", "/v%3Aa?urlencoded=true")));
    }
}
