//! The content of a file in pages, which copies share until one of them is written.

use std::sync::{Arc, LazyLock};

const PAGE: usize = 4_096;
/// A disk writes whole sectors, so a torn write is torn between two sectors.
const SECTOR: u64 = 512;

type Page = [u8; PAGE];

static ZEROS: LazyLock<Arc<Page>> = LazyLock::new(|| Arc::new([0; PAGE]));

#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    pages: Vec<Arc<Page>>,
    len: u64,
}

/// One change of a file.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// Writes the bytes at an offset.
    Write(u64, Vec<u8>),
    /// Cuts the file to at most this many bytes.
    Truncate(u64),
}

impl Change {
    /// The length that a shorter file has after the change.
    pub(super) fn end(&self) -> u64 {
        match self {
            Self::Write(at, bytes) => at + bytes.len() as u64,
            Self::Truncate(_) => 0,
        }
    }

    /// The first or last part of a write, cut between two sectors of the file. A write within one sector is not cut.
    pub(super) fn part(self, random: &mut impl FnMut(u64) -> u64) -> Self {
        let (at, mut bytes) = match self {
            Self::Write(at, bytes) => (at, bytes),
            Self::Truncate(_) => return self,
        };
        let first = at / SECTOR + 1;
        let cuts = (at + bytes.len() as u64).div_ceil(SECTOR).saturating_sub(first);
        if cuts == 0 {
            return Self::Write(at, bytes);
        }
        let cut = (first + random(cuts)) * SECTOR;
        let rest = bytes.split_off(usize_of(cut - at));
        if random(2) == 0 { Self::Write(at, bytes) } else { Self::Write(cut, rest) }
    }
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Reads from an offset, with zeros after the end. Returns whether the content covers the whole range.
    pub(super) fn read(&self, at: u64, to: &mut [u8]) -> bool {
        let end = at + to.len() as u64;
        let mut to = to;
        let mut at = usize_of(at);
        while !to.is_empty() {
            let within = at % PAGE;
            let (part, rest) = to.split_at_mut(to.len().min(PAGE - within));
            match self.pages.get(at / PAGE) {
                Some(page) => part.copy_from_slice(&page[within..within + part.len()]),
                None => part.fill(0),
            }
            at += part.len();
            to = rest;
        }
        end <= self.len
    }

    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Write(at, bytes) => self.write(*at, bytes),
            Change::Truncate(len) => self.truncate(*len),
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.grow(at + bytes.len() as u64);
        let (mut at, mut bytes) = (usize_of(at), bytes);
        while !bytes.is_empty() {
            let within = at % PAGE;
            let (part, rest) = bytes.split_at(bytes.len().min(PAGE - within));
            let page = Arc::make_mut(&mut self.pages[at / PAGE]);
            page[within..within + part.len()].copy_from_slice(part);
            at += part.len();
            bytes = rest;
        }
    }

    fn grow(&mut self, len: u64) {
        if len > self.len {
            self.len = len;
            self.pages.resize(usize_of(len).div_ceil(PAGE), Arc::clone(&ZEROS));
        }
    }

    fn truncate(&mut self, len: u64) {
        if len >= self.len {
            return;
        }
        self.len = len;
        self.pages.truncate(usize_of(len).div_ceil(PAGE));
        let within = usize_of(len) % PAGE;
        if within > 0
            && let Some(last) = self.pages.last_mut()
        {
            Arc::make_mut(last)[within..].fill(0);
        }
    }

    /// Takes over another content in the range of a change, by sharing its pages. A truncation takes over all of it.
    pub(super) fn share(&mut self, of: &Self, change: &Change) {
        let Change::Write(at, bytes) = change else {
            return self.clone_from(of);
        };
        self.grow(of.len);
        let pages = usize_of(*at) / PAGE..usize_of(at + bytes.len() as u64).div_ceil(PAGE);
        for page in pages {
            if let (Some(to), Some(from)) = (self.pages.get_mut(page), of.pages.get(page)) {
                *to = Arc::clone(from);
            }
        }
    }
}

/// Converts a size or offset; files are in memory, so it fits into `usize`.
fn usize_of(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
