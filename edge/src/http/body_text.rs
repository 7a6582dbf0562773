//! The text of a JSON body. A byte order mark is skipped. A byte or an escape that is not a character becomes U+FFFD,
//! so that one bad character affects no other.

use std::borrow::Cow;

use causeway_shared::base::limits;

/// The body as text for a JSON parser.
pub(crate) fn read_text(body: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body));
    if text.contains("\\u") { mend_surrogates(text) } else { text }
}

/// Replaces each escaped surrogate without its other half (RFC 8259, section 8.2) by the escape of U+FFFD.
fn mend_surrogates(text: Cow<'_, str>) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut lone = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte != b'\\' {
            at += 1;
            continue;
        }
        match read_escape(bytes, at) {
            Some(0xD800..0xDC00) if matches!(read_escape(bytes, at + 6), Some(0xDC00..0xE000)) => at += 12,
            Some(0xD800..0xE000) => {
                lone.push(at);
                at += 6;
            }
            // The escaped character cannot begin another escape.
            _ => at += 2,
        }
    }
    if lone.is_empty() {
        return text;
    }
    let mut mended = text.into_owned();
    lone.into_iter().for_each(|at| mended.replace_range(at..at + 6, "\\ufffd"));
    Cow::Owned(mended)
}

/// A name from a body, bounded for an answer, because the body may be hostile.
pub(crate) fn shown_name(name: &str) -> String {
    name.chars().take(limits::NAME_BYTES).collect()
}

/// The code unit of an escape `\uXXXX` at this index.
fn read_escape(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_bad_character_costs_only_itself() {
        let read = |body: &[u8]| serde_json::from_str::<String>(&read_text(body)).unwrap();
        let cases: [(&[u8], &str); 9] = [
            (br#""cut \ud83d""#, "cut \u{FFFD}"),
            (br#""\udc00\ud83d x""#, "\u{FFFD}\u{FFFD} x"),
            (br#""\ud83d\ud83d\ude00""#, "\u{FFFD}\u{1F600}"),
            (br#""\ud83d\ude00""#, "\u{1F600}"),
            (br#""\\ud83d""#, "\\ud83d"),
            (br#""\\\ud83d""#, "\\\u{FFFD}"),
            (br#""\ud83d\n""#, "\u{FFFD}\n"),
            (b"\"\xF0\x9F\"", "\u{FFFD}"),
            (b"\xEF\xBB\xBF\"x\"", "x"),
        ];
        for (body, text) in cases {
            assert_eq!(read(body), text, "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn a_sound_body_is_not_copied() {
        assert!(matches!(read_text(br#"{"a":"\u00e9\ud83d\ude00"}"#), Cow::Borrowed(_)));
    }
}
