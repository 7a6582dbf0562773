//! Columns in a file, so that a start need not read everybody from the store. The file is written a partition at a time while
//! the columns go on; whoever changed meanwhile is told by the store, and written anew by whoever reads the file. A file that is
//! damaged, of another store or too old is none.
//!
//! Blocks: the length and the CRC-32 of each in four bytes, the lowest first, and its bytes. The first says what it is of;
//! then each tenant's partitions, and what stands for them ([`causeway_shared::audience::index`]).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use causeway_shared::audience::index::{AudienceIndex, IndexReader, UsedTexts};
use causeway_shared::base::packed::{self, PackedReader};
use causeway_shared::base::time::HourStamp;

use super::Columns;
use crate::base::integers::{signed, unsigned};
use crate::store::{PersonNo, TenantNo};

/// The file's name, in the data directory.
const NAME: &str = "columns";
/// What a file of this form begins with.
const FORM: &[u8] = b"causeway columns 4\n";
/// A block's bytes at most: 65,536 rows of a thousand columns.
const MOST: u32 = 1 << 30;

/// Which state of which store columns are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileOrigin {
    /// How often the store was restored.
    pub(super) restore: i64,
    /// How often columns were asked to be built anew.
    pub(super) epoch: i64,
    /// The newest change that is in them.
    pub(super) seq: i64,
    /// Up to which hour expired segments left them.
    pub(super) hour: HourStamp,
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct FileWrite {
    path: PathBuf,
    file: File,
    /// Tenants that are still to be written, their partitions counted, and the next partition of the first.
    left: Vec<(TenantNo, usize)>,
    next: usize,
    /// The texts that people of its partitions have.
    used: UsedTexts,
    bytes: u64,
}

impl FileWrite {
    /// Begins a file of the columns as they are now.
    pub(super) fn begin(data: &Path, of: FileOrigin, columns: &Columns) -> io::Result<Self> {
        let path = data.join(NAME);
        let file = File::create(path.with_extension("part"))?;
        let left: Vec<(TenantNo, usize)> =
            columns.of_tenant.iter().map(|(no, people)| (*no, people.partitions())).collect();
        let mut head = FORM.to_vec();
        [of.restore, of.epoch, of.seq].iter().for_each(|number| packed::put_signed(&mut head, *number));
        packed::put(&mut head, of.hour.0.into());
        packed::put(&mut head, left.len() as u64);
        for (tenant, partitions) in &left {
            packed::put(&mut head, unsigned(tenant.0));
            packed::put(&mut head, *partitions as u64);
        }
        packed::put(&mut head, columns.unreadable.len() as u64);
        for (person, tenant) in &columns.unreadable {
            packed::put_signed(&mut head, person.0);
            packed::put(&mut head, unsigned(tenant.0));
        }
        let mut keeping = Self { path, file, left, next: 0, used: UsedTexts::default(), bytes: 0 };
        keeping.write(&head)?;
        Ok(keeping)
    }

    /// Writes one block more; gives the file's bytes once it is whole, and in its place.
    pub(super) fn step(&mut self, columns: &Columns) -> io::Result<Option<u64>> {
        let Some((tenant, partitions)) = self.left.first() else { return self.end().map(Some) };
        let Some(people) = columns.of_tenant.get(tenant) else {
            return Err(io::Error::other("a tenant's columns are gone"));
        };
        if self.next < *partitions {
            let block = people.pack_partition(self.next, &mut self.used);
            self.write(&block)?;
            self.next += 1;
        } else {
            let block = people.pack_names(&std::mem::take(&mut self.used));
            self.write(&block)?;
            self.left.remove(0);
            self.next = 0;
        }
        Ok(None)
    }

    fn write(&mut self, block: &[u8]) -> io::Result<()> {
        let length = u32::try_from(block.len()).ok().filter(|length| *length <= MOST);
        let length = length.ok_or_else(|| io::Error::other("a partition is too large"))?;
        self.file.write_all(&length.to_le_bytes())?;
        self.file.write_all(&crc32fast::hash(block).to_le_bytes())?;
        self.file.write_all(block)?;
        self.bytes += 8 + u64::from(length);
        // Each by itself: one for all of them would take long at the end.
        self.file.sync_data()
    }

    fn end(&mut self) -> io::Result<u64> {
        fs::rename(self.path.with_extension("part"), &self.path)?;
        self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())?;
        Ok(self.bytes)
    }
}

/// Each tenant's people, those that cannot be read, and what they are of.
type ColumnFile = (BTreeMap<TenantNo, AudienceIndex>, BTreeMap<PersonNo, TenantNo>, FileOrigin);

/// Columns from the file, and what they are of; `None` where there is none of use for `wanted`. `stop` is asked after each block.
pub(super) fn read(
    data: &Path,
    is_wanted: impl Fn(&FileOrigin) -> bool,
    stop: impl Fn() -> bool,
) -> Option<ColumnFile> {
    let path = data.join(NAME);
    let mut file = BufReader::with_capacity(1 << 20, File::open(&path).ok()?);
    let read = read_file(&mut file, is_wanted, &stop);
    if read.is_none() && !stop() {
        tracing::warn!(file = %path.display(), "the file of columns is damaged or of another state: they are built anew");
    }
    read
}

fn read_file(
    file: &mut impl io::Read,
    is_wanted: impl Fn(&FileOrigin) -> bool,
    stop: impl Fn() -> bool,
) -> Option<ColumnFile> {
    let head = read_block(file)?;
    let mut from = PackedReader(head.strip_prefix(FORM)?);
    let (restore, epoch, seq) = (from.signed()?, from.signed()?, from.signed()?);
    let of = FileOrigin { restore, epoch, seq, hour: HourStamp(u32::try_from(from.number()?).ok()?) };
    if !is_wanted(&of) {
        return None;
    }
    let mut all = BTreeMap::new();
    for _ in 0..from.number()? {
        let (tenant, partitions) = (TenantNo(signed(from.number()?)), from.number()?);
        let mut unpacking = IndexReader::default();
        for _ in 0..partitions {
            if stop() {
                return None;
            }
            unpacking.partition(&read_block(file)?)?;
        }
        all.insert(tenant, unpacking.names(&read_block(file)?)?);
    }
    let mut unreadable = BTreeMap::new();
    for _ in 0..from.number()? {
        unreadable.insert(PersonNo(from.signed()?), TenantNo(signed(from.number()?)));
    }
    from.is_empty().then_some((all, unreadable, of))
}

fn read_block(file: &mut impl io::Read) -> Option<Vec<u8>> {
    let mut number = || {
        let mut bytes = [0; 4];
        file.read_exact(&mut bytes).ok().map(|()| u32::from_le_bytes(bytes))
    };
    let (length, crc) = (number()?, number()?);
    let mut block = Vec::new();
    file.take(length.into()).read_to_end(&mut block).ok()?;
    (block.len() as u64 == u64::from(length) && length <= MOST && crc32fast::hash(&block) == crc).then_some(block)
}
