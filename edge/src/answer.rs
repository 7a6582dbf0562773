//! What comes out of the module: a KV read to do, or the answer.

use causeway_shared::limits;
use serde::Serialize;

use crate::hop::Class;

/// As many bytes as most answers have at most.
const MOST_ANSWERS: usize = 1_024;
/// What an outcome that crosses begins with.
const NUMBERS_BYTES: usize = 7 * 4;

/// A rate limit of the platform's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// What the worker knows it by.
    pub binding: String,
    /// Whom it counts. To whom a visitor is given only the shell knows: a network.
    pub key: String,
}

/// One step's outcome, told to the shell. What most outcomes have crosses as numbers and lines, the rest as JSON.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Head {
    /// The request to go on with after a read; never 0.
    #[serde(skip)]
    pub turn: Option<u32>,
    /// KV keys to read in one bulk read; then there are no `headers`.
    #[serde(skip)]
    pub read: Vec<String>,
    /// The object to call with the body, instead of a read; its answer goes on with the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<String>,
    /// Of which class it is.
    #[serde(skip_serializing_if = "Class::is_default")]
    pub class: Class,
    /// What to ask before the request goes on, for which a visitor was minted, or before the answer's facts are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The answer's status; 0 while the request goes on.
    #[serde(skip)]
    pub status: u16,
    /// Whether the body is JSON; the shell has the headers that all such answers share.
    #[serde(skip)]
    pub json: bool,
    /// The answer's own headers; a name may come more than once.
    #[serde(skip)]
    pub headers: Vec<(&'static str, String)>,
    /// Whether the answer waits until the queue has the facts.
    #[serde(skip)]
    pub ack: bool,
    /// Whether requests to come are to say from where they are.
    #[serde(skip)]
    pub place: bool,
    /// How many facts the outcome carries.
    #[serde(skip)]
    pub facts: u16,
    /// What went less than well, for the metrics: stable names, never ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<&'static str>,
    /// A page of the demonstration, which the shell serves.
    #[serde(skip_serializing_if = "is_false")]
    pub demo: bool,
    /// The page tag, which the shell serves.
    #[serde(skip_serializing_if = "is_false")]
    pub tag: bool,
    /// Whether it could not be served: nothing that it brought was taken, and the shell answers.
    #[serde(skip_serializing_if = "is_false")]
    pub gone: bool,
    /// A health check, which the shell answers: it knows of the last sync.
    #[serde(skip_serializing_if = "is_false")]
    pub health: bool,
}

impl Head {
    /// Keys or headers, with a line break between two: in neither is one.
    fn put_lines(&self, to: &mut Vec<u8>) {
        for key in &self.read {
            to.extend_from_slice(key.as_bytes());
            to.push(b'\n');
        }
        for (name, value) in &self.headers {
            to.extend_from_slice(name.as_bytes());
            to.push(b' ');
            to.extend_from_slice(value.as_bytes());
            to.push(b'\n');
        }
        to.pop_if(|last| *last == b'\n');
    }

    fn flags(&self) -> u32 {
        let flags = [self.json, self.ack, self.place, !self.read.is_empty()];
        flags.iter().rev().fold(0, |flags, flag| flags << 1 | u32::from(*flag))
    }

    /// What is seldom there, as JSON; empty without any.
    fn rest(&self) -> Vec<u8> {
        let Self { hop, class, limit, notes, demo, tag, gone, health, .. } = self;
        if hop.is_none()
            && class.is_default()
            && limit.is_none()
            && notes.is_empty()
            && !(*demo || *tag || *gone || *health)
        {
            return Vec::new();
        }
        // A struct of texts and numbers always has a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

/// One step's outcome.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// What the shell is to do.
    pub head: Head,
    /// The answer's body.
    pub body: Vec<u8>,
    /// A batch of facts for the queue, encoded; empty for none.
    pub facts: Vec<u8>,
}

/// A body over its bound.
pub(crate) fn too_large() -> Outcome {
    let message = format!("a body has {} bytes at most", limits::BODY_BYTES);
    Outcome::error(413, "too_large", &message, None)
}

impl Outcome {
    /// Writes the bytes that cross. First seven numbers (4 bytes each, little-endian): the turn, 0 for none; the status; flags,
    /// from the lowest bit on: JSON, acknowledge, place, and whether the lines are keys; how many facts, in the upper half
    /// of the status; then the lengths of lines, rest (JSON), body and facts, and these.
    pub fn write(&self, to: &mut Vec<u8>) {
        let Self { head, body, facts } = self;
        let status = u32::from(head.facts) << 16 | u32::from(head.status);
        to.clear();
        to.extend([0; NUMBERS_BYTES]);
        head.put_lines(to);
        let (lines, rest) = (to.len() - NUMBERS_BYTES, head.rest());
        let lengths = [lines, rest.len(), body.len(), facts.len()];
        [&rest, body, facts].into_iter().for_each(|part| to.extend_from_slice(part));
        let lengths = lengths.map(|length| u32::try_from(length).unwrap_or(u32::MAX));
        let numbers = [head.turn.unwrap_or(0), status, head.flags()].into_iter().chain(lengths);
        to.as_chunks_mut().0.iter_mut().zip(numbers).for_each(|(at, number)| *at = number.to_le_bytes());
    }

    /// A JSON answer that no cache keeps.
    pub(crate) fn json(status: u16, body: &impl Serialize) -> Self {
        let mut written = Vec::with_capacity(MOST_ANSWERS);
        // A struct of texts and numbers always has a JSON form.
        let body = serde_json::to_writer(&mut written, body).map(|()| written).unwrap_or_default();
        Self { head: Head { status, json: true, ..Head::default() }, body, facts: Vec::new() }
    }

    /// An error in the one shape all errors have.
    pub(crate) fn error(status: u16, code: &str, message: &str, field: Option<&str>) -> Self {
        #[derive(Serialize)]
        struct Inner<'a> {
            code: &'a str,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            field: Option<&'a str>,
        }
        #[derive(Serialize)]
        struct Body<'a> {
            error: Inner<'a>,
        }
        Self::json(status, &Body { error: Inner { code, message, field } })
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self { head: Head { status, ..Head::default() }, ..Self::default() }
    }

    pub(crate) fn with_headers(mut self, headers: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        self.head.headers.extend(headers);
        self
    }
}
