//! The digest of a file, which backups and exports compare with the digest that was taken when the file was written.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Bytes read at a time.
const PIECE: usize = 1 << 20;

/// Size of a file in bytes, and its SHA-256 in hexadecimal digits.
pub(super) fn file_digest(path: &Path) -> io::Result<(u64, String)> {
    let (mut file, mut digest, mut size) = (File::open(path)?, Sha256::new(), 0);
    let mut piece = vec![0; PIECE];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok((size, digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()));
        }
        size += read as u64;
        digest.update(piece.get(..read).unwrap_or_default());
    }
}
