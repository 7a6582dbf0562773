//! A table as CSV (RFC 4180): a header line, one line per row, bytes in base64. An empty cell is null in an optional
//! column, and an empty text in any other. A text that a spreadsheet would read as a formula gets an apostrophe in
//! front.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_shared::base::limits;

use super::hashed_file::HashedFile;
use super::tables::{ColumnKind, ExportColumn, FileCell};

/// Prefix of a text that begins with one of [`ESCAPED`].
const APOSTROPHE: char = '\'';
/// The first characters of a spreadsheet formula, blanks that some spreadsheets skip, and the apostrophe itself, so
/// that every text is read back exactly.
const ESCAPED: [char; 8] = ['=', '+', '-', '@', '\t', '\r', '\n', APOSTROPHE];

/// Writer of a CSV table.
#[derive(Debug)]
pub(super) struct CsvWriter {
    to: HashedFile,
    line: Vec<u8>,
}

impl CsvWriter {
    pub(super) fn new(to: HashedFile, columns: &[ExportColumn]) -> io::Result<Self> {
        let mut writer = Self { to, line: Vec::new() };
        writer.record(columns.iter().map(|column| column.name.to_owned()))?;
        Ok(writer)
    }

    pub(super) fn put(&mut self, row: &[FileCell]) -> io::Result<()> {
        self.record(row.iter().map(|cell| match cell {
            FileCell::Null => String::new(),
            FileCell::Int(n) => n.to_string(),
            FileCell::Bool(yes) => yes.to_string(),
            FileCell::Text(text) if text.starts_with(ESCAPED) => format!("{APOSTROPHE}{text}"),
            FileCell::Text(text) => text.clone(),
            FileCell::Bytes(bytes) => STANDARD.encode(bytes),
        }))
    }

    fn record(&mut self, cells: impl Iterator<Item = String>) -> io::Result<()> {
        self.line.clear();
        let mut line = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(&mut self.line);
        line.write_record(cells.collect::<Vec<_>>()).and_then(|()| Ok(line.flush()?))?;
        drop(line);
        self.to.write_all(&self.line)
    }

    pub(super) fn finish(self) -> HashedFile {
        self.to
    }
}

/// Reader of a CSV table.
#[derive(Debug)]
pub(super) struct CsvReader {
    from: BufReader<std::fs::File>,
    columns: Vec<ExportColumn>,
    record: Vec<u8>,
}

impl CsvReader {
    pub(super) fn open(path: &Path, columns: Vec<ExportColumn>) -> Result<Self, String> {
        let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
        let mut reader = Self { from: BufReader::new(file), columns, record: Vec::new() };
        let names = reader.cells()?.unwrap_or_default();
        if !reader.columns.iter().map(|column| column.name).eq(&names) {
            return Err("its first line does not name the columns of its table".to_owned());
        }
        Ok(reader)
    }

    /// The next row; `None` after the last.
    ///
    /// # Errors
    /// A description of the row's fault.
    pub(super) fn next(&mut self) -> Result<Option<Vec<FileCell>>, String> {
        let Some(cells) = self.cells()? else { return Ok(None) };
        if cells.len() != self.columns.len() {
            return Err(format!("it has {} cells, expected {}", cells.len(), self.columns.len()));
        }
        self.columns.iter().zip(cells).map(|(column, text)| read_cell(column, text)).collect::<Result<_, _>>().map(Some)
    }

    /// The cells of the next record. A record ends at a line break outside quotes.
    fn cells(&mut self) -> Result<Option<Vec<String>>, String> {
        self.record.clear();
        let most = limits::EXPORT_LINE_BYTES;
        let mut is_open = false;
        loop {
            let before = self.record.len();
            let left = (most + 1 - before) as u64;
            self.from.by_ref().take(left).read_until(b'\n', &mut self.record).map_err(|e| e.to_string())?;
            let line = self.record.get(before..).unwrap_or_default();
            if self.record.len() > most {
                return Err(format!("it is longer than {most} bytes"));
            }
            if line.is_empty() {
                return if is_open { Err("a quote is not closed".to_owned()) } else { Ok(None) };
            }
            is_open ^= !line.iter().filter(|byte| **byte == b'"').count().is_multiple_of(2);
            if !is_open {
                break;
            }
        }
        let mut lines = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&*self.record);
        let record = lines.records().next().ok_or("a line is empty")?.map_err(|e| e.to_string())?;
        Ok(Some(record.iter().map(str::to_owned).collect()))
    }
}

fn read_cell(column: &ExportColumn, text: String) -> Result<FileCell, String> {
    let name = column.name;
    if text.is_empty() && column.optional {
        return Ok(FileCell::Null);
    }
    Ok(match column.kind {
        ColumnKind::Int(..) => {
            FileCell::Int(text.parse().map_err(|_| format!("`{name}` is not a whole number of 64 bits"))?)
        }
        ColumnKind::Bool => FileCell::Bool(text.parse().map_err(|_| format!("`{name}` is neither true nor false"))?),
        ColumnKind::Bytes => {
            FileCell::Bytes(STANDARD.decode(text).map_err(|e| format!("`{name}` is not base64: {e}"))?)
        }
        ColumnKind::Text(_) => FileCell::Text(text.strip_prefix(APOSTROPHE).map(str::to_owned).unwrap_or(text)),
        ColumnKind::Visitor | ColumnKind::Hex(_) => FileCell::Text(text),
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::maintenance::export::file::ExportFormat;
    use crate::maintenance::export::tables::TABLES;

    /// Three text columns, of which the third is optional.
    fn columns() -> Vec<ExportColumn> {
        let audit = TABLES.iter().find(|table| table.name == "sends").unwrap();
        let all = audit.file_columns();
        ["name", "filter", "experiment"].iter().map(|name| *all.iter().find(|of| of.name == *name).unwrap()).collect()
    }

    #[test]
    fn no_text_is_a_formula_of_a_spreadsheet_and_each_is_read_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ExportFormat::Csv.name("some"));
        let texts = [
            "=1+1",
            "+1",
            "-1",
            "@sum(1)",
            "\t=1",
            "\r=1",
            "\n=1",
            "'",
            "'=1",
            "''",
            "a=1",
            " =1",
            "",
            "=cmd|'/c x'!A0, \"b\"",
        ];
        let mut writer = CsvWriter::new(HashedFile::create(&path).unwrap(), &columns()).unwrap();
        let rows: Vec<Vec<FileCell>> = texts
            .iter()
            .map(|text| vec![FileCell::Text((*text).to_owned()), FileCell::Text(String::new()), FileCell::Null])
            .collect();
        rows.iter().for_each(|row| writer.put(row).unwrap());
        writer.finish().finish().unwrap();
        let mut lines = csv::ReaderBuilder::new().from_path(&path).unwrap();
        for record in lines.records() {
            let record = record.unwrap();
            assert!(!record[0].starts_with(['=', '+', '-', '@', '\t', '\r', '\n']), "{record:?}");
        }
        let mut reader = CsvReader::open(&path, columns()).unwrap();
        let read: Vec<_> = std::iter::from_fn(|| reader.next().unwrap()).collect();
        assert_eq!(read, rows);
    }

    #[test]
    fn cells_hold_line_breaks_quotes_and_commas_and_what_is_broken_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ExportFormat::Csv.name("some"));
        let text = |text: &str| FileCell::Text(text.to_owned());
        let rows = [
            vec![text("a\r\nb"), text("\n"), FileCell::Null],
            vec![text("\""), text(",\r"), text("e\"\n\"f")],
            vec![text(""), text(" x "), text("\u{fc}")],
        ];
        let mut writer = CsvWriter::new(HashedFile::create(&path).unwrap(), &columns()).unwrap();
        rows.iter().for_each(|row| writer.put(row).unwrap());
        writer.finish().finish().unwrap();
        let mut reader = CsvReader::open(&path, columns()).unwrap();
        let read: Vec<_> = std::iter::from_fn(|| reader.next().unwrap()).collect();
        assert_eq!(read, rows);
        let refused = |text: &str| {
            std::fs::write(&path, text).unwrap();
            CsvReader::open(&path, columns()).and_then(|mut reader| reader.next()).unwrap_err()
        };
        assert!(refused("name,filter,experiment\r\na,\"b,c\r\n").contains("a quote is not closed"));
        assert!(refused("name,filter,experiment\r\na,b\r\n").contains("2 cells"));
        assert!(refused("name,filter\r\n").contains("columns"));
        assert!(
            refused(&format!("name,filter,experiment\na,b,\"{}", "x\n".repeat(limits::EXPORT_LINE_BYTES)))
                .contains("longer than")
        );
    }
}
