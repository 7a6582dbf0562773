//! Where in a JSON text a reader stopped: `placements[1].id`, as errors name a field.
//!
//! A deserialiser knows line and column alone. To note the path on the way would cost every call that is well formed.

use std::fmt::Write as _;

/// A path longer than this names nothing that anybody asked for.
const PATH_BYTES: usize = 256;

/// What the reader was in.
enum In<'a> {
    Array(usize),
    Object(&'a str),
}

/// The path to where the reader of `text` stopped; `None` at the text's top, and where the error says no place.
#[cold]
pub(crate) fn field(text: &str, error: &serde_json::Error) -> Option<String> {
    let line = text.split_inclusive('\n').take(error.line().checked_sub(1)?).map(str::len).sum::<usize>();
    let read = text.get(..(line + error.column()).min(text.len()))?;
    let mut open: Vec<In<'_>> = Vec::new();
    let mut at = 0;
    while let Some(byte) = read.as_bytes().get(at) {
        at += 1;
        match byte {
            b'[' => open.push(In::Array(0)),
            b'{' => open.push(In::Object("")),
            b']' | b'}' => drop(open.pop()),
            b',' => match open.last_mut() {
                Some(In::Array(index)) => *index += 1,
                Some(In::Object(key)) => *key = "",
                None => {}
            },
            b'"' => {
                let inside = read.get(at..)?;
                let end = closing(inside);
                if let (Some(In::Object(key @ "")), Some(end)) = (open.last_mut(), end) {
                    *key = inside.get(..end)?;
                }
                at += end.map_or(inside.len(), |end| end + 1);
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for part in open {
        match part {
            In::Array(index) => drop(write!(path, "[{index}]")),
            In::Object("") => {}
            In::Object(key) if path.is_empty() => path.push_str(key),
            In::Object(key) => drop(write!(path, ".{key}")),
        }
    }
    (1..=PATH_BYTES).contains(&path.len()).then_some(path)
}

/// Where a text's closing quote is.
fn closing(inside: &str) -> Option<usize> {
    let mut is_escaped = false;
    inside.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}
