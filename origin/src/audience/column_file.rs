//! File of the audience index, so that a start need not read all people from the store. The file is written one
//! partition at a time while the index continues to change. The store lists the people that changed since the file was
//! begun, and the process that reads the file rewrites their rows. A file that is damaged, too old or of another store
//! is ignored.
//!
//! Format: a sequence of blocks, each with its length and its CRC-32 (32 bits each, little-endian) before its bytes.
//! The first block identifies the file's origin; the others hold each tenant's partitions and the texts and names that
//! these refer to ([`causeway_shared::audience::index`]).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use causeway_shared::audience::index::{AudienceIndex, IndexReader, UsedTexts};
use causeway_shared::base::packed::{self, PackedReader};
use causeway_shared::base::time::HourStamp;

use super::AudienceIndexes;
use crate::base::integers::{signed, unsigned};
use crate::store::{PersonNo, TenantNo};

/// The file's name, in the data directory.
const NAME: &str = "audience-index";
/// First bytes of a file in this format.
const FORM: &[u8] = b"causeway columns 4\n";
/// Largest block in bytes: room for 65,536 rows of a thousand columns.
const MOST: u32 = 1 << 30;

/// The store and the state of it from which an index was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileOrigin {
    /// Number of times that the store was restored from a backup.
    pub(super) restore: i64,
    /// Number of times that a rebuild of the index was requested.
    pub(super) epoch: i64,
    /// Newest change that the index contains.
    pub(super) seq: i64,
    /// Hour up to which expired segments were removed from the index.
    pub(super) hour: HourStamp,
}

/// An index file that is being written.
#[derive(Debug)]
pub(super) struct FileWrite {
    path: PathBuf,
    file: File,
    /// Tenants that are not written completely, each with its number of partitions. `next` is the first tenant's next
    /// partition.
    left: Vec<(TenantNo, usize)>,
    next: usize,
    /// Texts that people of the written partitions use.
    used: UsedTexts,
    bytes: u64,
}

impl FileWrite {
    /// Begins a file of the index in its current state.
    pub(super) fn begin(data: &Path, of: FileOrigin, indexes: &AudienceIndexes) -> io::Result<Self> {
        let path = data.join(NAME);
        let file = File::create(path.with_extension("part"))?;
        let left: Vec<(TenantNo, usize)> =
            indexes.of_tenant.iter().map(|(no, people)| (*no, people.partitions())).collect();
        let mut head = FORM.to_vec();
        [of.restore, of.epoch, of.seq].iter().for_each(|number| packed::put_signed(&mut head, *number));
        packed::put(&mut head, of.hour.0.into());
        packed::put(&mut head, left.len() as u64);
        for (tenant, partitions) in &left {
            packed::put(&mut head, unsigned(tenant.0));
            packed::put(&mut head, *partitions as u64);
        }
        packed::put(&mut head, indexes.unreadable.len() as u64);
        for (person, tenant) in &indexes.unreadable {
            packed::put_signed(&mut head, person.0);
            packed::put(&mut head, unsigned(tenant.0));
        }
        let mut writing = Self { path, file, left, next: 0, used: UsedTexts::default(), bytes: 0 };
        writing.write(&head)?;
        Ok(writing)
    }

    /// Writes the next block. Returns the file's size in bytes once the file is complete and has its final name.
    pub(super) fn step(&mut self, indexes: &AudienceIndexes) -> io::Result<Option<u64>> {
        let Some((tenant, partitions)) = self.left.first() else { return self.end().map(Some) };
        let Some(people) = indexes.of_tenant.get(tenant) else {
            return Err(io::Error::other(
                "the audience index no longer has a tenant of the file that is being written",
            ));
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
        let length = length.ok_or_else(|| {
            io::Error::other("a partition of the audience index exceeds the largest block of its file")
        })?;
        self.file.write_all(&length.to_le_bytes())?;
        self.file.write_all(&crc32fast::hash(block).to_le_bytes())?;
        self.file.write_all(block)?;
        self.bytes += 8 + u64::from(length);
        // One sync a block: a single sync at the end would block for a long time.
        self.file.sync_data()
    }

    fn end(&mut self) -> io::Result<u64> {
        fs::rename(self.path.with_extension("part"), &self.path)?;
        self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())?;
        Ok(self.bytes)
    }
}

/// Each tenant's index, the unreadable people, and the file's origin.
type ColumnFile = (BTreeMap<TenantNo, AudienceIndex>, BTreeMap<PersonNo, TenantNo>, FileOrigin);

/// Reads the index file. Returns `None` if there is no valid file whose origin satisfies `is_wanted`, or if `stop` asks
/// to stop (checked before each partition).
pub(super) fn read(
    data: &Path,
    is_wanted: impl Fn(&FileOrigin) -> bool,
    stop: impl Fn() -> bool,
) -> Option<ColumnFile> {
    let path = data.join(NAME);
    let mut file = BufReader::with_capacity(1 << 20, File::open(&path).ok()?);
    let read = read_file(&mut file, is_wanted, &stop);
    if read.is_none() && !stop() {
        tracing::warn!(file = %path.display(), "the file of the audience index is damaged or belongs to another state of the store: rebuilding the index");
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
