//! The path in a JSON text at which its reader stopped, such as `placements[1].id`: errors name it as the field.
//!
//! A deserialiser reports line and column only. Recording the path while reading would slow down every valid call.

/// Longest path that an error names, in bytes. Every field of the API has a shorter one.
const PATH_BYTES: usize = 256;
/// Marks an array where an object has its key.
const ARRAY: &str = "[";

/// The path at which the reader of `text` stopped; `None` at the top of the text, and for an error without a position.
#[cold]
pub(crate) fn field(text: &str, error: &serde_json::Error) -> Option<String> {
    let line = text.split_inclusive('\n').take(error.line().checked_sub(1)?).map(str::len).sum::<usize>();
    let read = text.get(..(line + error.column()).min(text.len()))?;
    // The open arrays and objects: the key that was read last, and the number of values before the present one.
    let mut open: Vec<(&str, usize)> = Vec::new();
    let mut at = 0;
    while let Some(byte) = read.as_bytes().get(at) {
        at += 1;
        match (byte, open.last_mut()) {
            (b'[', _) => open.push((ARRAY, 0)),
            (b'{', _) => open.push(("", 0)),
            (b']' | b'}', _) => drop(open.pop()),
            (b',', Some((ARRAY, before))) => *before += 1,
            (b',', Some((key, _))) => *key = "",
            (b'"', within) => {
                let inside = read.get(at..)?;
                let end = closing(inside);
                if let (Some((key @ "", _)), Some(end)) = (within, end) {
                    *key = inside.get(..end)?;
                }
                at += end.map_or(inside.len(), |end| end + 1);
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for (key, before) in open {
        path += &match key {
            ARRAY => format!("[{before}]"),
            key if path.is_empty() || key.is_empty() => key.to_owned(),
            key => format!(".{key}"),
        };
    }
    (1..=PATH_BYTES).contains(&path.len()).then_some(path)
}

/// The position of a text's closing quote.
fn closing(inside: &str) -> Option<usize> {
    let mut is_escaped = false;
    inside.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}
