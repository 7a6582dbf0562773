//! The frame of a KV value, made by hand: tag, base64 of CRC-32 and bytes.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// A value with a valid checksum and any content.
pub(crate) fn framed(tag: &str, key: &str, bytes: &[u8]) -> String {
    let mut crc = crc32fast::Hasher::new();
    [tag.as_bytes(), key.as_bytes(), &[0], bytes].iter().for_each(|part| crc.update(part));
    let sum = crc.finalize().to_be_bytes();
    format!("{tag}{}", STANDARD_NO_PAD.encode([sum.as_slice(), bytes].concat()))
}

/// The content of a value.
pub(crate) fn inside(value: &str) -> Vec<u8> {
    STANDARD_NO_PAD.decode(&value[2..]).unwrap().split_off(4)
}
