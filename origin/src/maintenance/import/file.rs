//! A file of lines, plain or compressed, in chunks of whole lines. A Parquet row is read as a line of JSON.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::parquet::schema::types::TypePtr;
use sha2::{Digest as _, Sha256};

use super::ImportKind;
use super::parquet::ParquetRows;
use super::parquet_columns::{WrongType, wrong_type};

/// Size of a chunk in bytes; its last line may exceed it.
const CHUNK_BYTES: usize = 512 * 1_024;
/// Longest line, in bytes. A visitor with a thousand segments as JSON needs a tenth of it.
pub const LINE_BYTES: usize = 1_024 * 1_024;

/// Format of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportFormat {
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object per line.
    Ndjson,
    /// One Parquet row per line, as a JSON object.
    Parquet,
}

/// The reason why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be opened or read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file name does not show the format.
    #[error(
        "{}: the name must end in .parquet, .csv, .ndjson or .jsonl; the last three may be followed by .gz or .zst",
        .0.display()
    )]
    Name(PathBuf),
    /// A column of a Parquet file has an unsupported type.
    #[error("the column `{column}` has the type `{declared}`: expected {wanted}")]
    Type {
        /// The column.
        column: String,
        /// Its type, as Parquet declares it.
        declared: String,
        /// The supported values.
        wanted: &'static str,
    },
    /// The header line lacks required columns.
    #[error("the first line: {0}")]
    Header(String),
    /// The reader's thread panicked.
    #[error("the reader failed")]
    Thread,
}

/// Whole lines of a file.
#[derive(Debug)]
pub struct LineChunk {
    /// Number of the chunk, from 0.
    pub number: u64,
    /// Number of lines before the chunk.
    pub first_line: u64,
    /// Number of lines in the chunk.
    pub lines: u64,
    /// Bytes of the file read up to the end of the chunk.
    pub bytes: u64,
    /// The lines. A line over [`LINE_BYTES`] is cut and therefore refused.
    pub text: Vec<u8>,
}

/// An open file.
#[derive(Debug)]
pub struct ImportFile {
    path: PathBuf,
    form: ImportFormat,
    name: String,
    header: Vec<u8>,
    lines: LineReader,
    /// The schema of a Parquet file; otherwise `None`.
    schema: Option<TypePtr>,
    read: Arc<AtomicU64>,
}

impl ImportFile {
    /// Opens a file, whose name gives the format, and reads the header line of a CSV.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError::Read { path: path.to_owned(), source };
        let (form, packing) = file_kind(path).ok_or_else(|| FileError::Name(path.to_owned()))?;
        let file = fs::File::open(path).map_err(failed)?;
        let name = name(path, &file.metadata().map_err(failed)?).map_err(failed)?;
        let read = Arc::new(AtomicU64::new(0));
        let counted = |file| CountedReader { file, read: Arc::clone(&read) };
        let mut schema = None;
        let unpacked: Box<dyn Read + Send> = match packing {
            CompressionKind::None => Box::new(counted(file)),
            CompressionKind::Gzip => Box::new(flate2::read::MultiGzDecoder::new(counted(file))),
            CompressionKind::Zstd => Box::new(zstd::stream::read::Decoder::new(counted(file)).map_err(failed)?),
            CompressionKind::Parquet => {
                let rows = ParquetRows::open(file, Arc::clone(&read)).map_err(failed)?;
                schema = Some(rows.schema());
                Box::new(rows)
            }
        };
        let mut lines = LineReader(BufReader::with_capacity(CHUNK_BYTES, unpacked));
        // Spreadsheets write a byte order mark at the start of a file.
        if lines.0.fill_buf().map_err(failed)?.starts_with("\u{feff}".as_bytes()) {
            lines.0.consume("\u{feff}".len());
        }
        let mut header = Vec::new();
        if form == ImportFormat::Csv {
            lines.one(&mut header).map_err(failed)?;
        }
        Ok(Self { path: path.to_owned(), form, name, header, lines, schema, read })
    }

    /// Checks that the columns of a Parquet file have types that an import of this kind supports.
    ///
    /// # Errors
    /// [`FileError::Type`].
    pub fn check_types(&self, kind: ImportKind) -> Result<(), FileError> {
        let wrong = self.schema.as_ref().and_then(|schema| wrong_type(kind, schema));
        wrong.map_or(Ok(()), |WrongType { column, declared, wanted }| Err(FileError::Type { column, declared, wanted }))
    }

    /// Format of its lines.
    #[must_use]
    pub fn form(&self) -> ImportFormat {
        self.form
    }

    /// Identifies this version of the file by its path, size and time of modification.
    #[must_use]
    pub fn file_name(&self) -> &str {
        &self.name
    }

    /// The header line of a CSV.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Passes the lines after the first `skip` to `give`, until `give` returns `false`.
    ///
    /// # Errors
    /// [`FileError::Read`].
    pub fn chunks(mut self, skip: u64, mut give: impl FnMut(LineChunk) -> bool) -> Result<(), FileError> {
        let failed = |source| FileError::Read { path: self.path.clone(), source };
        let mut line = u64::from(self.form == ImportFormat::Csv);
        let mut text = Vec::new();
        while line < skip {
            text.clear();
            if self.lines.one(&mut text).map_err(failed)? == 0 {
                return Ok(());
            }
            line += 1;
        }
        for number in 0.. {
            let mut chunk = LineChunk { number, first_line: line, lines: 0, bytes: 0, text: Vec::new() };
            while chunk.text.len() < CHUNK_BYTES && self.lines.one(&mut chunk.text).map_err(failed)? > 0 {
                chunk.lines += 1;
            }
            line += chunk.lines;
            chunk.bytes = self.read.load(Ordering::Relaxed);
            if chunk.lines == 0 || !give(chunk) {
                return Ok(());
            }
        }
        Ok(())
    }
}

enum CompressionKind {
    None,
    Gzip,
    Zstd,
    Parquet,
}

fn file_kind(path: &Path) -> Option<(ImportFormat, CompressionKind)> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let (name, packing) = match name.rsplit_once('.')? {
        (_, "parquet") => return Some((ImportFormat::Parquet, CompressionKind::Parquet)),
        (name, "gz") => (name.to_owned(), CompressionKind::Gzip),
        (name, "zst") => (name.to_owned(), CompressionKind::Zstd),
        _ => (name, CompressionKind::None),
    };
    match name.rsplit_once('.')?.1 {
        "csv" => Some((ImportFormat::Csv, packing)),
        "ndjson" | "jsonl" => Some((ImportFormat::Ndjson, packing)),
        _ => None,
    }
}

fn name(path: &Path, of: &fs::Metadata) -> io::Result<String> {
    let path = fs::canonicalize(path)?;
    let modified = of.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let text = format!("{}\n{}\n{modified}", path.display(), of.len());
    Ok(Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

struct LineReader(BufReader<Box<dyn Read + Send>>);

impl std::fmt::Debug for LineReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lines")
    }
}

impl LineReader {
    /// Appends the next line with its line break. The part over [`LINE_BYTES`] is left out. Returns the number of bytes
    /// read, 0 at the end of the file.
    fn one(&mut self, to: &mut Vec<u8>) -> io::Result<usize> {
        let (mut read, start) = (0, to.len());
        loop {
            let found = self.0.fill_buf()?;
            if found.is_empty() {
                if read > 0 && to.last() != Some(&b'\n') {
                    to.push(b'\n');
                }
                return Ok(read);
            }
            let end = found.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let taken = end.unwrap_or(found.len());
            let room = LINE_BYTES.saturating_sub(to.len() - start);
            to.extend(found.iter().take(taken.min(room)));
            self.0.consume(taken);
            read += taken;
            if end.is_some() {
                if to.last() != Some(&b'\n') {
                    to.push(b'\n');
                }
                return Ok(read);
            }
        }
    }
}

struct CountedReader {
    file: fs::File,
    read: Arc<AtomicU64>,
}

impl Read for CountedReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(to)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
