//! Where in a JSON text a reader stopped: `placements[1].id`, as errors name a field.
//!
//! A deserialiser knows line and column alone. To note the path on the way would cost every call that is well formed.

/// A path longer than this names nothing that anybody asked for.
const PATH_BYTES: usize = 256;
/// What an array has in a key's place.
const ARRAY: &str = "[";

/// The path to where the reader of `text` stopped; `None` at the text's top, and where the error says no place.
#[cold]
pub(crate) fn field(text: &str, error: &serde_json::Error) -> Option<String> {
    let line = text.split_inclusive('\n').take(error.line().checked_sub(1)?).map(str::len).sum::<usize>();
    let read = text.get(..(line + error.column()).min(text.len()))?;
    // The arrays and objects that the reader was in: the key that was read last, and how many values were before.
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

/// Where a text's closing quote is.
fn closing(inside: &str) -> Option<usize> {
    let mut is_escaped = false;
    inside.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}
