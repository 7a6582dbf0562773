//! Values that stand for a missing id. A page that sends one as an alternate id would join all its visitors into one
//! person.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use base64_simd::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use md5::Md5;
use percent_encoding::percent_decode_str;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

/// Words that programs and people write instead of an id, in lower case.
pub const WORDS: [&str; 38] = [
    "0",
    "-",
    "--",
    "-1",
    "[]",
    "{}",
    "\\n",
    "(null)",
    "(none)",
    "(not set)",
    "(undefined)",
    "#n/a",
    "anonymous",
    "default",
    "empty",
    "false",
    "guest",
    "missing",
    "n/a",
    "na",
    "nan",
    "nil",
    "none",
    "not set",
    "not-set",
    "not_set",
    "null",
    "null null",
    "true",
    "undefined",
    "undefined undefined",
    "unknown",
    "user-id",
    "user_id",
    "userid",
    "00000000-0000-0000-0000-000000000000",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "{{user_id}}",
];
/// Other spellings that programs write, in addition to [`WORDS`] in lower case, in upper case and capitalised.
const SPELLINGS: [&str; 3] = ["", "[object Object]", "NaN"];
/// Template delimiters that may occur anywhere in a value: an unfilled template leaves them.
const TEMPLATES: [(&str, &str); 6] = [("{{", "}}"), ("${", "}"), ("#{", "}"), ("<%", "%>"), ("%%", "%%"), ("[[", "]]")];
/// Template delimiters that, with a name between them, form the whole value.
const NAMED_TEMPLATES: [(&str, &str); 4] = [("{", "}"), ("[", "]"), ("<", ">"), ("%", "%")];

/// Hashes of the empty text and of [`WORDS`], under each hash function that pages apply to ids.
static HASHES: LazyLock<BTreeSet<Vec<u8>>> = LazyLock::new(|| {
    let capitalised =
        |word: &str| word.chars().take(1).flat_map(char::to_uppercase).chain(word.chars().skip(1)).collect();
    let words = WORDS.iter().flat_map(|word| [(*word).to_owned(), word.to_uppercase(), capitalised(word)]);
    let words = words.chain(SPELLINGS.map(str::to_owned));
    words
        .flat_map(|word| {
            [
                Md5::digest(&word).to_vec(),
                Sha1::digest(&word).to_vec(),
                Sha256::digest(&word).to_vec(),
                Sha512::digest(&word).to_vec(),
            ]
        })
        .collect()
});

/// Whether a value stands for a missing id, in any letter case, with or without blanks and quotes around it. Such a
/// value is one of [`WORDS`], a stringified object, an unfilled template, a number of zeros only, a UUID of one
/// repeated digit, or the hash of one of these words.
#[must_use]
pub fn is_placeholder(value: &str) -> bool {
    let is_decoded = |value: &str| {
        let decoded = percent_decode_str(value).decode_utf8_lossy();
        decoded != value && is_plain_placeholder(&decoded)
    };
    is_plain_placeholder(value) || value.contains('%') && is_decoded(value)
}

fn is_plain_placeholder(value: &str) -> bool {
    let is_around = |c: char| {
        c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '`' | '\u{200B}'..='\u{200F}' | '\u{FEFF}')
    };
    let value = value.trim_matches(is_around);
    let small = value.to_lowercase();
    let is_object = small.starts_with("[object ") && small.ends_with(']');
    value.is_empty()
        || is_object
        || WORDS.contains(&small.as_str())
        || is_of_one_digit(&small)
        || is_template(&small)
        || is_hash_of_placeholder(value)
}

/// Whether a value is a number of zeros only, or a UUID of one repeated digit, in any form of UUIDs.
fn is_of_one_digit(value: &str) -> bool {
    let value = value.strip_prefix("urn:uuid:").unwrap_or(value);
    let value = value.strip_prefix('{').and_then(|value| value.strip_suffix('}')).unwrap_or(value);
    let digits: Vec<u8> = value.bytes().filter(|byte| !matches!(byte, b'-' | b'.' | b':')).collect();
    let Some(first) = digits.first() else { return false };
    let is_one = digits.iter().all(|digit| digit == first);
    is_one && (*first == b'0' || digits.len() == 32 && first.is_ascii_hexdigit())
}

/// Whether a value contains an unfilled template. A UUID in braces is an id.
fn is_template(value: &str) -> bool {
    let has = |(open, close): (&str, &str)| value.split_once(open).is_some_and(|(_, rest)| rest.contains(close));
    let is_name = |name: &str| {
        let is_uuid = name.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
            && name.bytes().any(|byte| byte.is_ascii_digit());
        name.starts_with(|first: char| first.is_alphabetic() || matches!(first, '_' | '$'))
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$' | ' ' | '|'))
            && !is_uuid
    };
    let is_named = |(open, close): (&str, &str)| {
        value.strip_prefix(open).and_then(|value| value.strip_suffix(close)).is_some_and(is_name)
    };
    TEMPLATES.into_iter().any(has) || NAMED_TEMPLATES.into_iter().any(is_named)
}

/// Whether a value is the hash of a word that stands for a missing id, in hex digits or base64.
fn is_hash_of_placeholder(value: &str) -> bool {
    let text = value.trim_end_matches('=');
    let bytes = match value.len() {
        32 | 40 | 64 | 128 if value.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let pairs = value.as_bytes().chunks_exact(2);
            pairs.map(|pair| pair.iter().try_fold(0, |sum: u8, byte| Some(sum << 4 | digit(*byte)?))).collect()
        }
        _ if matches!(text.len(), 22 | 27 | 43 | 86) => {
            [STANDARD_NO_PAD, URL_SAFE_NO_PAD].iter().find_map(|base64| base64.decode_to_vec(text).ok())
        }
        _ => None,
    };
    bytes.is_some_and(|bytes: Vec<u8>| HASHES.contains(&bytes))
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
            "[object Undefined]",
            "[object Null]",
            "[object HTMLInputElement]",
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
            "0.0",
            "\"null\"",
            "\"\"",
            "' undefined '",
            "\u{FEFF}null\u{200B}",
            "n/a",
            "\\N",
            "undefined undefined",
        ];
        for value in missing {
            assert!(is_placeholder(value), "{value}");
        }
        for value in ["1", "m-123", "nullable", "0001", "ann", "00000000-0000-0000-0000-000000000001", "10", "object"] {
            assert!(!is_placeholder(value), "{value}");
        }
    }

    #[test]
    fn a_uuid_of_one_digit_alone_stands_for_a_missing_id_in_any_form() {
        for value in [
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
            "{00000000-0000-0000-0000-000000000000}",
            "{FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF}",
            "urn:uuid:00000000-0000-0000-0000-000000000000",
            "11111111-1111-1111-1111-111111111111",
        ] {
            assert!(is_placeholder(value), "{value}");
        }
        for value in [
            "{3f2504e0-4f89-41d3-9a0c-0305e82c3301}",
            "{abcdef12-4f89-41d3-9a0c-0305e82c3301}",
            "ffffffff-ffff-ffff-ffff-fffffffffffe",
            "ffff",
            "1111",
        ] {
            assert!(!is_placeholder(value), "{value}");
        }
    }

    #[test]
    fn a_template_that_was_not_filled_in_stands_for_a_missing_id() {
        for value in [
            "{{user_id}}",
            "{{ user.id | default }}",
            "member-{{id}}",
            "${userId}",
            "#{id}",
            "<%= user.id %>",
            "%%USER_ID%%",
            "[[uid]]",
            "{user_id}",
            "[USER_ID]",
            "<user-id>",
            "%user_id%",
            "%7B%7Buser_id%7D%7D",
            "%5Bobject%20Object%5D",
        ] {
            assert!(is_placeholder(value), "{value}");
        }
        for value in [
            "{7}",
            "a{b}",
            "[1,2]",
            "100%",
            "50%25",
            "a%b%c",
            "user%40example.com",
            "$7",
            "#7",
            "<7>",
            "<ann@example.com>",
        ] {
            assert!(!is_placeholder(value), "{value}");
        }
    }

    #[test]
    fn a_hash_value_of_a_placeholder_stands_for_a_missing_id() {
        for value in [
            // Hashes of the empty text: MD5, SHA-1, SHA-256, SHA-512.
            "d41d8cd98f00b204e9800998ecf8427e",
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
            "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
            "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
            "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU",
            "1B2M2Y8AsgTpgAmY7PhCfg==",
            // MD5 of `null`, `undefined` and `None`.
            "37a6259cc0c1dae299a7866489dff0bd",
            "5e543256c480ac577d30f76f9120eb74",
            "6adf97f83acf6453d4a6a4b1070f3754",
        ] {
            assert!(is_placeholder(value), "{value}");
        }
        for word in WORDS.iter().copied().chain(["", "NULL", "Undefined", "[object Object]", "NaN", "N/A"]) {
            let hex: String = Sha256::digest(word).iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(is_placeholder(&hex), "{word}");
        }
        let ann: String = Sha256::digest("ann@example.com").iter().map(|byte| format!("{byte:02x}")).collect();
        for value in [ann.as_str(), "d41d8cd98f00b204e9800998ecf8427f", "1234567890123456789012"] {
            assert!(!is_placeholder(value), "{value}");
        }
    }
}
