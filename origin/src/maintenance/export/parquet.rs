//! A table as Parquet: flat columns, zstd, row groups of bounded size. It is written and read by column, without Arrow.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

use ::parquet::basic::{Compression, Type as Physical, ZstdLevel};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use ::parquet::errors::Result as Done;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;
use ::parquet::schema::types::Type;

use super::hashed_file::HashedFile;
use super::tables::{ColumnKind, ExportColumn, FileCell};

/// Most rows of a row group.
const GROUP_ROWS: usize = 65_536;
/// Bytes of texts and blobs after which a row group ends.
const GROUP_BYTES: usize = 16 * 1_024 * 1_024;
/// Rows read at a time.
const BATCH: usize = 256;

/// The file's schema in Parquet's message notation.
fn file_schema(columns: &[ExportColumn]) -> Done<Arc<Type>> {
    let field = |column: &ExportColumn| {
        let need = if column.optional { "optional" } else { "required" };
        let (name, (form, text)) = (column.name, column_form(column.kind));
        format!("{need} {form} {name}{};", if text { " (UTF8)" } else { "" })
    };
    let fields: String = columns.iter().map(field).collect();
    parse_message_type(&format!("message causeway {{ {fields} }}")).map(Arc::new)
}

fn column_form(kind: ColumnKind) -> (Physical, bool) {
    match kind {
        ColumnKind::Int(..) => (Physical::INT64, false),
        ColumnKind::Bool => (Physical::BOOLEAN, false),
        ColumnKind::Text(_) | ColumnKind::Visitor | ColumnKind::Hex(_) => (Physical::BYTE_ARRAY, true),
        ColumnKind::Bytes => (Physical::BYTE_ARRAY, false),
    }
}

/// Writer of a Parquet table.
pub(super) struct ParquetWriter {
    to: SerializedFileWriter<HashedFile>,
    columns: Vec<ExportColumn>,
    group: Vec<Vec<FileCell>>,
    bytes: usize,
}

impl fmt::Debug for ParquetWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writer")
    }
}

impl ParquetWriter {
    pub(super) fn new(to: HashedFile, columns: Vec<ExportColumn>) -> io::Result<Self> {
        let form = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by("causeway".to_owned())
            .build();
        let to = SerializedFileWriter::new(to, file_schema(&columns)?, Arc::new(form))?;
        Ok(Self { to, columns, group: Vec::new(), bytes: 0 })
    }

    pub(super) fn put(&mut self, row: Vec<FileCell>) -> io::Result<()> {
        let length = |cell: &FileCell| match cell {
            FileCell::Text(text) => text.len(),
            FileCell::Bytes(bytes) => bytes.len(),
            FileCell::Null | FileCell::Int(_) | FileCell::Bool(_) => 0,
        };
        self.bytes += row.iter().map(length).sum::<usize>();
        self.group.push(row);
        if self.group.len() < GROUP_ROWS && self.bytes < GROUP_BYTES { Ok(()) } else { Ok(self.end_group()?) }
    }

    fn end_group(&mut self) -> Done<()> {
        let rows = std::mem::take(&mut self.group);
        self.bytes = 0;
        let mut group = self.to.next_row_group()?;
        for (index, column) in self.columns.iter().enumerate() {
            let cells = rows.iter().filter_map(|row| row.get(index));
            match column_form(column.kind).0 {
                Physical::INT64 => put_column::<Int64Type>(&mut group, cells, |cell| match cell {
                    FileCell::Int(n) => Some(*n),
                    _ => None,
                }),
                Physical::BOOLEAN => put_column::<BoolType>(&mut group, cells, |cell| match cell {
                    FileCell::Bool(yes) => Some(*yes),
                    _ => None,
                }),
                _ => put_column::<ByteArrayType>(&mut group, cells, |cell| match cell {
                    FileCell::Text(text) => Some(ByteArray::from(text.as_str())),
                    FileCell::Bytes(bytes) => Some(ByteArray::from(bytes.clone())),
                    _ => None,
                }),
            }?;
        }
        group.close().map(drop)
    }

    pub(super) fn finish(mut self) -> io::Result<HashedFile> {
        if !self.group.is_empty() {
            self.end_group()?;
        }
        Ok(self.to.into_inner()?)
    }
}

fn put_column<'c, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, HashedFile>,
    cells: impl Iterator<Item = &'c FileCell>,
    value: impl Fn(&FileCell) -> Option<T::T>,
) -> Done<()> {
    let values: Vec<Option<T::T>> = cells.map(value).collect();
    // A required column ignores the definition levels.
    let levels: Vec<i16> = values.iter().map(|value| value.is_some().into()).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(&values, Some(&levels), None)?;
        column.close()?;
    }
    Ok(())
}

/// Reader of a Parquet table.
pub(super) struct ParquetReader {
    file: SerializedFileReader<File>,
    columns: Vec<ExportColumn>,
    next_group: usize,
    /// Column readers of the current row group, one per column, and its remaining rows.
    group: Vec<ColumnReader>,
    left: usize,
    /// Rows read but not returned yet, in reverse order.
    batch: Vec<Vec<FileCell>>,
}

impl fmt::Debug for ParquetReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

impl ParquetReader {
    /// # Errors
    /// A description of the file's fault.
    pub(super) fn open(path: &Path, columns: Vec<ExportColumn>) -> Result<Self, String> {
        catch_panic(|| Self::open_file(path, columns))
    }

    fn open_file(path: &Path, columns: Vec<ExportColumn>) -> Result<Self, String> {
        let open = File::open(path).map_err(|e| e.to_string())?;
        let file = SerializedFileReader::new(open).map_err(|e| e.to_string())?;
        let wanted = file_schema(&columns).map_err(|e| e.to_string())?;
        let fields = |of: &Type| -> Vec<(String, Option<Physical>, bool)> {
            let of_field = |field: &Arc<Type>| {
                let physical = field.is_primitive().then(|| field.get_physical_type());
                (field.name().to_owned(), physical, field.is_optional())
            };
            of.get_fields().iter().map(of_field).collect()
        };
        if fields(&wanted) != fields(file.metadata().file_metadata().schema()) {
            return Err("its columns are not those of the table".to_owned());
        }
        Ok(Self { file, columns, next_group: 0, group: Vec::new(), left: 0, batch: Vec::new() })
    }

    /// The next row; `None` after the last.
    ///
    /// # Errors
    /// A description of the row's fault.
    pub(super) fn next(&mut self) -> Result<Option<Vec<FileCell>>, String> {
        if self.batch.is_empty() {
            catch_panic(|| self.read())?;
        }
        Ok(self.batch.pop())
    }

    /// Reads until the batch has rows or the file ends.
    fn read(&mut self) -> Result<(), String> {
        while self.batch.is_empty() {
            if self.left == 0 {
                if self.next_group == self.file.num_row_groups() {
                    return Ok(());
                }
                let group = self.file.get_row_group(self.next_group).map_err(|e| e.to_string())?;
                self.left = usize::try_from(group.metadata().num_rows()).map_err(|e| e.to_string())?;
                let readers = (0..self.columns.len()).map(|column| group.get_column_reader(column));
                self.group = readers.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
                self.next_group += 1;
            } else {
                self.fill()?;
            }
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<(), String> {
        let count = self.left.min(BATCH);
        let mut rows: Vec<Vec<FileCell>> = vec![Vec::with_capacity(self.columns.len()); count];
        for (column, reader) in self.columns.iter().zip(&mut self.group) {
            let cells = match reader {
                ColumnReader::Int64ColumnReader(reader) => read_column(reader, count, |n| Ok(FileCell::Int(n))),
                ColumnReader::BoolColumnReader(reader) => read_column(reader, count, |yes| Ok(FileCell::Bool(yes))),
                ColumnReader::ByteArrayColumnReader(reader) => read_column(reader, count, |bytes| {
                    if !column_form(column.kind).1 {
                        return Ok(FileCell::Bytes(bytes.data().to_vec()));
                    }
                    let text = bytes.as_utf8().map_err(|_| format!("`{}` is not UTF-8", column.name))?;
                    Ok(FileCell::Text(text.to_owned()))
                }),
                _ => Err("its columns are not those of the table".to_owned()),
            }?;
            rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
        }
        self.left -= count;
        rows.reverse();
        self.batch = rows;
        Ok(())
    }
}

/// Turns a panic into an error: the Parquet reader panics on some bytes that are not valid Parquet. The reader must not
/// be used after that.
pub(crate) fn catch_panic<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
    done.unwrap_or_else(|_| Err("it is not a valid Parquet file".to_owned()))
}

fn read_column<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    count: usize,
    cell: impl Fn(T::T) -> Result<FileCell, String>,
) -> Result<Vec<FileCell>, String> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let (rows, _, _) = reader.read_records(count, Some(&mut levels), None, &mut values).map_err(|e| e.to_string())?;
    if rows != count {
        return Err("a column ends before the others".to_owned());
    }
    let mut values = values.into_iter();
    if levels.is_empty() {
        return values.map(cell).collect();
    }
    let next =
        |level: &i16| if *level == 0 { Ok(FileCell::Null) } else { values.next().map_or(Ok(FileCell::Null), &cell) };
    levels.iter().map(next).collect()
}
