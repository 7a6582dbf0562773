//! A writer that hashes what passes through it.

use crate::maintenance::export::Path;
use crate::maintenance::export::io::{self, BufWriter, Write};
use crate::maintenance::export::tables::to_hex;
use sha2::Digest as _;
use sha2::Sha256;
use std::fs::File;

/// A new file that is hashed while it is written.
#[derive(Debug)]
pub(crate) struct HashedFile {
    file: BufWriter<File>,
    digest: Sha256,
    bytes: u64,
}

impl HashedFile {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self::of(File::options().write(true).create_new(true).open(path)?))
    }

    pub(crate) fn of(file: File) -> Self {
        Self { file: BufWriter::with_capacity(256 * 1_024, file), digest: Sha256::new(), bytes: 0 }
    }

    /// Makes the file durable and returns its size in bytes and its SHA-256.
    pub(crate) fn finish(self) -> io::Result<(u64, String)> {
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok((self.bytes, to_hex(&self.digest.finalize())))
    }
}

impl Write for HashedFile {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let written = self.file.write(from)?;
        self.digest.update(from.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
