//! Values that stand for a missing id. A page that sends one as an alternate id would make one person of all its visitors.

/// Words that programs and people write where there is no id, in small letters.
pub const WORDS: [&str; 26] = [
    "0",
    "-",
    "--",
    "-1",
    "[]",
    "{}",
    "(null)",
    "(none)",
    "(not set)",
    "[object object]",
    "[object promise]",
    "anonymous",
    "default",
    "empty",
    "false",
    "guest",
    "n/a",
    "na",
    "nan",
    "nil",
    "none",
    "not set",
    "null",
    "true",
    "undefined",
    "unknown",
];

/// Whether a value stands for a missing id: one of [`WORDS`] in any case and with blanks around it, or a UUID, or another
/// number, of zeros alone.
#[must_use]
pub fn is_placeholder(value: &str) -> bool {
    let value = value.trim().trim_matches('"').to_lowercase();
    let is_zero = value.contains('0') && value.bytes().all(|byte| matches!(byte, b'0' | b'-'));
    value.is_empty() || is_zero || WORDS.contains(&value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_a_missing_id_is_found_and_ids_are_not() {
        let missing = [
            "undefined",
            "null",
            "[object Object]",
            "0",
            "anonymous",
            "00000000-0000-0000-0000-000000000000",
            "",
            "  ",
            " NULL ",
            "NaN",
            "[object Promise]",
            "Guest",
            "000",
            "\"null\"",
            "n/a",
        ];
        for value in missing {
            assert!(is_placeholder(value), "{value}");
        }
        for value in ["1", "m-123", "nullable", "0001", "ann", "00000000-0000-0000-0000-000000000001", "10"] {
            assert!(!is_placeholder(value), "{value}");
        }
    }
}
