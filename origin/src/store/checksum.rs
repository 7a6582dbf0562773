//! Packed bytes as a column stores them: a CRC-32, then the bytes. The CRC-32 is checked at each read, so that a
//! flipped bit on the disk makes one value unreadable instead of wrong.

use causeway_shared::wire::WireError;
use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, Value, ValueRef};

use super::StoreError;

/// Length of the CRC-32 in bytes; it is big-endian.
const SUM: usize = 4;

/// The packed bytes of one value. Empty bytes are stored as an empty value, which has no checksum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckedBytes(pub Vec<u8>);

impl CheckedBytes {
    /// The packed bytes of a stored value, borrowed from it.
    ///
    /// # Errors
    /// [`WireError::Checksum`] if the CRC-32 does not match the bytes.
    pub fn open(stored: &[u8]) -> Result<&[u8], WireError> {
        if stored.is_empty() {
            return Ok(stored);
        }
        let (sum, bytes) = stored.split_first_chunk::<SUM>().ok_or(WireError::Checksum)?;
        if crc32fast::hash(bytes) == u32::from_be_bytes(*sum) { Ok(bytes) } else { Err(WireError::Checksum) }
    }

    /// The packed bytes of a column, borrowed from it.
    ///
    /// # Errors
    /// [`StoreError::Form`] with [`WireError::Checksum`]; [`StoreError::Sqlite`] if the column holds no blob.
    pub fn open_column(stored: ValueRef<'_>) -> Result<&[u8], StoreError> {
        Ok(Self::open(stored.as_blob().map_err(rusqlite::Error::from)?)?)
    }

    /// The stored form of packed bytes.
    #[must_use]
    pub fn seal(bytes: &[u8]) -> Vec<u8> {
        if bytes.is_empty() {
            return Vec::new();
        }
        [&crc32fast::hash(bytes).to_be_bytes()[..], bytes].concat()
    }
}

impl ToSql for CheckedBytes {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Owned(Value::Blob(Self::seal(&self.0))))
    }
}

impl FromSql for CheckedBytes {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let bytes = Self::open(value.as_blob()?).map_err(|e| FromSqlError::Other(Box::new(e)))?;
        Ok(Self(bytes.to_vec()))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_stored_value_is_found() {
        let conn = Connection::open_in_memory().unwrap();
        let read = |bytes: &[u8]| -> Result<Vec<u8>, StoreError> {
            let read = conn.query_row("SELECT ?1", [bytes], |row| row.get::<_, CheckedBytes>(0));
            Ok(read.map(|bytes| bytes.0)?)
        };
        let stored = CheckedBytes::seal(b"causeway");
        assert_eq!(read(&stored).unwrap(), b"causeway");
        assert_eq!(read(&[]).unwrap(), b"");
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(read(&flipped), Err(StoreError::Form(WireError::Checksum))), "bit {bit}");
        }
        for length in 1..stored.len() {
            assert!(matches!(read(&stored[..length]), Err(StoreError::Form(WireError::Checksum))), "{length} bytes");
        }
    }

    #[test]
    fn a_value_of_another_type_is_an_error_of_the_statement() {
        let conn = Connection::open_in_memory().unwrap();
        let read = conn.query_row("SELECT 'text'", [], |row| row.get::<_, CheckedBytes>(0)).map_err(StoreError::from);
        assert!(matches!(read, Err(StoreError::Sqlite(_))));
    }
}
