//! `causeway import`: writes facts from files directly into the store. Workers parse lines into facts in parallel. One
//! transaction after another folds them in the file's order, together with the position in the file. An interrupted
//! import continues there, and a repeated import changes nothing.

mod cells;
mod event_line;
pub mod file;
mod parquet;
mod parquet_columns;
pub mod refusal;
pub mod rows;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use causeway_shared::base::ids::{FactId, Millis, VisitorId};
use causeway_shared::base::limits;
use rusqlite::{Connection, OptionalExtension as _};

use crate::base::attribution::Attribution;
use crate::base::clock;
use crate::base::integers::{signed, unsigned};
use crate::base::metrics::Metrics;
use crate::identity::connections;
use crate::ingest::intake::{CheckedFact, LogRecord};
use crate::pipeline::commit;
use crate::store::tables::imports;
use crate::store::write_txn::TxnRules;
use crate::store::{StoreError, TenantNo};
use file::{FileError, ImportFile, LineChunk};
use rows::{BadLine, LineLayout, Placed};

/// Bytes of text whose facts are folded in one transaction.
const TRANSACTION_BYTES: u64 = 8 * 1_024 * 1_024;
/// Facts folded in one transaction while another process serves, plus those of one chunk, because requests to that
/// process wait meanwhile.
const SERVED_FACTS: usize = 5_000;
/// Chunks per worker that may wait for the workers, and for the writer.
const WAITING: usize = 4;
/// Pause between transactions, longer than a serving origin sleeps between two attempts to write (SQLite's busy
/// handler: at most 100 ms).
const PAUSE: Duration = Duration::from_millis(120);

/// The content of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportKind {
    /// Segments of visitors.
    Segments,
    /// Events of visitors.
    Events,
    /// Links between visitors, with their weight.
    Links,
}

/// The options of an import.
#[expect(missing_debug_implementations, reason = "it holds a function")]
pub struct ImportRequest<'a> {
    /// The store's rules.
    pub rules: &'a TxnRules,
    /// The visitors' tenant.
    pub tenant: TenantNo,
    /// The content of the lines.
    pub kind: ImportKind,
    /// Number of threads that parse lines.
    pub workers: usize,
    /// The author and the reason of the import.
    pub attribution: Attribution,
    /// Whether another process serves from the store at the moment. It then gets a pause between two transactions.
    pub served: &'a (dyn Fn() -> bool + Sync),
}

/// The progress or the result of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportProgress {
    /// Bytes of the file that were read, before decompression.
    pub bytes: u64,
    /// Lines done, including earlier runs.
    pub lines: u64,
    /// Lines done in earlier runs.
    pub before: u64,
    /// New facts in this run.
    pub facts: u64,
    /// Facts that the store already had.
    pub repeats: u64,
    /// Facts of erased visitors, which are not stored.
    pub erased: u64,
    /// Lines refused in this run.
    pub bad: u64,
    /// Lines refused in earlier runs, and not read again in this one.
    pub bad_before: u64,
}

/// The reason why an import ended early. Its committed transactions remain.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The progress callback returned `false`.
    #[error("interrupted: run the same command again to continue")]
    Interrupted,
}

/// A parsed chunk.
struct ReadChunk {
    chunk: u64,
    /// Number of lines up to the end of the chunk.
    lines: u64,
    bytes: u64,
    size: u64,
    facts: Vec<Placed>,
    bad: Vec<BadLine>,
}

/// Imports a file. `tell` is called after each transaction with the progress and the refused lines; `false` ends the
/// import.
///
/// # Errors
/// [`ImportError`].
pub fn run(
    conn: &mut Connection,
    job: &ImportRequest<'_>,
    path: &Path,
    mut tell: impl FnMut(&ImportProgress, &[BadLine]) -> bool,
) -> Result<ImportProgress, ImportError> {
    let file = ImportFile::open(path)?;
    file.check_types(job.kind)?;
    let columns = LineLayout::of(job.kind, file.form(), file.header()).map_err(FileError::Header)?;
    // The same file may be imported for another tenant or as another kind.
    let name = format!("{} {} {:?}", file.file_name(), job.tenant.0, job.kind);
    let now = clock::now();
    let FileProgress { lines: done, bad: bad_before, .. } = file_progress(conn, &name, now)?;
    let rows = rows::RowReader { tenant: job.rules.tenants.by_no(job.tenant)?, columns, file: name, now };
    // One row of the audit trail per run, however many transactions it needs.
    let run = FactId::of_message(VisitorId::ANONYMOUS, &format!("import {} {now}", rows.file));
    let said = Attribution { run: Some(run.receipt()), ..job.attribution.clone() };
    let (to_workers, chunks) = sync_channel::<LineChunk>(WAITING * job.workers);
    let (to_writer, read) = sync_channel::<ReadChunk>(WAITING * job.workers);
    // Only the workers hold the receiver, so the reader ends with the last worker.
    let chunks = Arc::new(Mutex::new(chunks));
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || file.chunks(done, |chunk| to_workers.send(chunk).is_ok()));
        for _ in 0..job.workers {
            let (to_writer, chunks, rows) = (to_writer.clone(), Arc::clone(&chunks), &rows);
            scope.spawn(move || {
                while let Some(chunk) = next(&chunks)
                    && to_writer.send(read_chunk(rows, &chunk)).is_ok()
                {}
            });
        }
        drop((to_writer, chunks));
        let progress = ImportProgress { lines: done, before: done, bad_before, ..ImportProgress::default() };
        let written = write(conn, job, &rows.file, &said, progress, &read, &mut tell);
        // Dropping the receiver closes the channel and ends the workers.
        drop(read);
        let ended = reading.join().map_err(|_| FileError::Thread)?;
        let progress = written?;
        ended?;
        Ok(progress)
    })
}

fn next(chunks: &Mutex<Receiver<LineChunk>>) -> Option<LineChunk> {
    chunks.lock().ok()?.recv().ok()
}

fn read_chunk(rows: &rows::RowReader<'_>, chunk: &LineChunk) -> ReadChunk {
    let (facts, bad) = rows.read(chunk);
    let LineChunk { number, first_line, lines, bytes, .. } = *chunk;
    ReadChunk { chunk: number, lines: first_line + lines, bytes, size: chunk.text.len() as u64, facts, bad }
}

/// Folds the parsed chunks in the file's order.
fn write(
    conn: &mut Connection,
    job: &ImportRequest<'_>,
    file: &str,
    said: &Attribution,
    mut progress: ImportProgress,
    read: &Receiver<ReadChunk>,
    tell: &mut impl FnMut(&ImportProgress, &[BadLine]) -> bool,
) -> Result<ImportProgress, ImportError> {
    let metrics = Metrics::default();
    let mut early: BTreeMap<u64, ReadChunk> = BTreeMap::new();
    let (mut next, mut size) = (0, 0);
    let fresh = || LogRecord::bulk(Vec::new(), said.clone());
    let mut record = fresh();
    let mut bad = Vec::new();
    let most_of = |served: bool| if served { SERVED_FACTS } else { usize::MAX };
    let mut most = most_of((job.served)());
    let mut over = false;
    loop {
        while record.facts.len() < most
            && size < TRANSACTION_BYTES
            && let Some(read) = early.remove(&next)
        {
            next += 1;
            size += read.size;
            let known =
                if job.kind == ImportKind::Links { known_facts(conn, read.facts, &mut bad)? } else { read.facts };
            record.facts.extend(known.into_iter().map(|(_, checked)| checked));
            bad.extend(read.bad);
            (progress.lines, progress.bytes) = (read.lines, read.bytes);
        }
        let ended = over && !early.contains_key(&next);
        if record.facts.len() < most && size < TRANSACTION_BYTES && !ended {
            let more = read.recv();
            over = more.is_err();
            early.extend(more.into_iter().map(|read| (read.chunk, read)));
            continue;
        }
        let facts = record.facts.len() as u64;
        let records = [Arc::new(std::mem::replace(&mut record, fresh()))];
        let given = crate::store::write_txn::draw_inputs()?;
        progress.bad += bad.len() as u64;
        let state = FileProgress { lines: progress.lines, bad: progress.bad_before + progress.bad, ended };
        let noted = |tx: &Connection| note_file(tx, file, state, given.now);
        let done = commit::commit_with(conn, job.rules, &metrics, given, |_| Ok(&records), &[], noted)?;
        let new: u64 = done.new.iter().sum();
        progress.facts += new;
        progress.repeats += (facts - new).saturating_sub(done.erased + done.quarantined);
        progress.erased += done.erased;
        size = 0;
        if !tell(&progress, &bad) {
            return Err(ImportError::Interrupted);
        }
        bad.clear();
        if ended {
            return Ok(progress);
        }
        let served = (job.served)();
        most = most_of(served);
        if served {
            std::thread::sleep(PAUSE);
        }
    }
}

/// The facts of lines whose visitors all exist. Evidence for a visitor without any fact would never be used.
fn known_facts(conn: &Connection, facts: Vec<Placed>, bad: &mut Vec<BadLine>) -> Result<Vec<Placed>, StoreError> {
    let mut known = Vec::with_capacity(facts.len());
    for line in facts.chunk_by(|(one, _), (next, _)| one == next) {
        let mut unknown = None;
        let mut resolved = Vec::with_capacity(line.len());
        for (number, CheckedFact { tenant, fact }) in line {
            match connections::date_evidence(conn, *tenant, vec![fact.clone()])? {
                Ok(facts) => {
                    resolved.extend(facts.into_iter().map(|fact| (*number, CheckedFact { tenant: *tenant, fact })))
                }
                Err(visitor) => {
                    let message = format!("visitor {visitor} not found");
                    unknown = Some(BadLine { line: *number, code: "unknown_visitor", message });
                }
            }
        }
        match unknown {
            Some(line) => bad.push(line),
            None => known.extend(resolved),
        }
    }
    Ok(known)
}

/// The position in a file.
#[derive(Debug, Clone, Copy, Default)]
struct FileProgress {
    /// Lines that need not be read again.
    lines: u64,
    /// Number of refused lines among them.
    bad: u64,
    /// Whether the file was read to its end.
    ended: bool,
}

/// The position in a file. A completed file with refused lines is read again from the start, because the cause of a
/// refusal may be gone. Its accepted facts count once while their FactIds are stored; after that, the file stays
/// completed.
fn file_progress(conn: &Connection, file: &str, now: Millis) -> Result<FileProgress, StoreError> {
    let found = conn
        .query_row(imports::IMPORTS_BY_FILE, [file], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((lines, state, changed)): Option<(i64, i64, i64)> = found else { return Ok(FileProgress::default()) };
    let (lines, state) = (unsigned(lines), unsigned(state));
    let done = FileProgress { lines, bad: state >> 1, ended: state & 1 > 0 };
    let again = done.ended && done.bad > 0 && unsigned(changed).saturating_add(limits::FACT_AGE_MS) > now;
    Ok(if again { FileProgress::default() } else { done })
}

/// Stores the position. `changed` stays the time of the first transaction, which bounds the age of the FactIds. `ended`
/// stores the number of refused lines above its lowest bit.
fn note_file(
    tx: &Connection,
    file: &str,
    FileProgress { lines, bad, ended }: FileProgress,
    now: Millis,
) -> Result<(), StoreError> {
    let state = u64::from(ended) | bad << 1;
    tx.prepare_cached(imports::IMPORTS_UPSERT)?.execute((file, signed(lines), signed(now), signed(state)))?;
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use causeway_shared::base::ids::Micros;
    use causeway_shared::base::random::Random;
    use causeway_shared::facts::fact::{Fact, FactKind};

    use crate::testing::{NOW, Origin, page, visitor};

    #[test]
    fn a_few_flipped_bits_of_a_parquet_file_end_with_an_error_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("people.parquet");
        crate::maintenance::export::people(std::fs::File::create(&path).unwrap(), (0..50).map(|n| visitor(n % 5)))
            .unwrap();
        let lines = || {
            let mut lines = 0;
            let count = |chunk: LineChunk| {
                lines += chunk.lines;
                lines <= 100
            };
            ImportFile::open(&path)?.chunks(0, count)?;
            Ok::<_, FileError>(lines)
        };
        assert_eq!(lines().unwrap(), 50);
        let (whole, mut random, mut refused) = (std::fs::read(&path).unwrap(), Random::new([7; 32]), 0);
        for _ in 0..2_000 {
            let mut bytes = whole.clone();
            for _ in 0..3 {
                let at = usize::from(u16::from_le_bytes(random.draw())) % bytes.len();
                bytes[at] ^= 1 << (at % 8);
            }
            std::fs::write(&path, bytes).unwrap();
            refused += usize::from(lines().is_err());
        }
        assert!(refused > 200, "{refused}");
    }

    #[test]
    fn what_was_refused_is_taken_by_the_same_file_once_its_cause_is_mended_and_the_rest_counts_once() {
        let mut origin = Origin::new();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("links.csv");
        let line = |n: u32| format!("{},partner,p-{n},0.4,match\n", visitor(n));
        std::fs::write(&path, format!("visitor,kind,value,weight,source\n{}{}", line(1), line(2))).unwrap();
        origin.send("demo", &[page(visitor(1), 1, NOW)]);
        let tenant = origin.tenant("demo").no;
        let run = |origin: &mut Origin| {
            let said = Attribution::cli(None, None);
            let job = ImportRequest {
                rules: &origin.rules,
                tenant,
                kind: ImportKind::Links,
                workers: 1,
                attribution: said,
                served: &|| false,
            };
            let done = super::run(&mut origin.conn, &job, &path, |_, _| true).unwrap();
            (done.facts, done.repeats, done.bad)
        };
        assert_eq!(run(&mut origin), (1, 0, 1));
        assert_eq!(run(&mut origin), (0, 1, 1), "the visitor has not come yet");
        origin.send("demo", &[page(visitor(2), 2, NOW)]);
        assert_eq!(run(&mut origin), (1, 1, 0));
        assert_eq!(run(&mut origin), (0, 0, 0), "all of it is in");
        // After a refusal and an interruption, the file is read again from its first line once it was completed, but
        // not after its FactIds have expired.
        let set = |origin: &Origin, ended: u8, changed: Millis| {
            let set = "UPDATE imports SET lines = 2, ended = ?1, changed = ?2";
            origin.conn.execute(set, (ended, signed(changed))).unwrap();
        };
        set(&origin, 2, clock::now());
        assert_eq!(run(&mut origin), (0, 1, 0), "the rest");
        assert_eq!(run(&mut origin), (0, 2, 0), "all of it, once more");
        set(&origin, 3, clock::now() - limits::FACT_AGE_MS);
        assert_eq!(run(&mut origin), (0, 1, 0));
    }

    #[test]
    fn an_origin_that_serves_waits_for_no_long_transaction() {
        let mut origin = Origin::new();
        let folder = tempfile::tempdir().unwrap();
        origin.send("demo", &(0..5).map(|v| page(visitor(v), 1, NOW)).collect::<Vec<_>>());
        let tenant = origin.tenant("demo").no;
        let mut run = |name: &str, served: &(dyn Fn() -> bool + Sync)| {
            let path = folder.path().join("links.csv");
            let mut text = String::from("visitor,kind,value,weight,source\n");
            (0..40_000).for_each(|n| text.push_str(&format!("{},partner,{name}-{n},0.4,match\n", visitor(n % 5))));
            std::fs::write(&path, text).unwrap();
            let said = Attribution::cli(None, None);
            let job = ImportRequest {
                rules: &origin.rules,
                tenant,
                kind: ImportKind::Links,
                workers: 2,
                attribution: said,
                served,
            };
            let (mut lines, mut each) = (0, Vec::new());
            let done = super::run(&mut origin.conn, &job, &path, |progress, _| {
                each.push(progress.lines - lines);
                lines = progress.lines;
                true
            });
            assert_eq!(done.unwrap().lines, 40_001);
            each
        };
        // At most one chunk exceeds the bound.
        let each = run("p", &|| true);
        assert!(each.iter().all(|lines| *lines < 15_000), "{each:?}");
        // After the serving process has ended, transactions become long again.
        let first = AtomicBool::new(true);
        let each = run("q", &|| first.swap(false, Ordering::Relaxed));
        assert!(matches!(each[..], [some, more, ..] if some < 15_000 && more > 15_000), "{each:?}");
    }

    #[test]
    fn a_cell_with_a_line_break_is_refused_and_not_cut() {
        let mut origin = Origin::new();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.csv");
        let (of, at) = (visitor(1), clock::now());
        let text = format!("visitor,type,at_ms,name\n{of},track,{at},\"my\nevent\"\n{of},track,{at},\"a, b\"\n");
        std::fs::write(&path, text).unwrap();
        let (tenant, said) = (origin.tenant("demo").no, Attribution::cli(None, None));
        let job = ImportRequest {
            rules: &origin.rules,
            tenant,
            kind: ImportKind::Events,
            workers: 1,
            attribution: said,
            served: &|| false,
        };
        let mut refused = Vec::new();
        let done = super::run(&mut origin.conn, &job, &path, |_, bad| {
            refused.extend(bad.iter().map(|bad| (bad.line, bad.message.contains("quote"))));
            true
        });
        assert_eq!((done.unwrap().facts, refused), (1, vec![(2, true), (3, true)]));
    }

    /// The facts of some lines, and the messages of the refused ones.
    fn read_lines(
        kind: ImportKind,
        form: file::ImportFormat,
        head: &[u8],
        lines: &[String],
    ) -> (Vec<Fact>, Vec<String>) {
        let origin = Origin::new();
        let tenant = origin.tenant("demo").clone();
        let columns = rows::LineLayout::of(kind, form, head).unwrap();
        let reader = rows::RowReader { tenant: &tenant, columns, file: "a file".to_owned(), now: NOW };
        let text = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
        let chunk = file::LineChunk { number: 0, first_line: 0, lines: 1, bytes: 0, text };
        let (facts, bad) = reader.read(&chunk);
        (facts.into_iter().map(|(_, of)| of.fact).collect(), bad.into_iter().map(|bad| bad.message).collect())
    }

    #[test]
    fn a_whole_number_that_a_file_writes_as_a_float_is_that_number() {
        let of = visitor(1);
        let line = |at: &str, value: &str| {
            format!(
                r#"{{"visitor":"{of}","type":"track","name":"purchase","id":"e","at_ms":{at},"value_micros":{value}}}"#
            )
        };
        let at = NOW.to_string();
        let whole = read_lines(ImportKind::Events, file::ImportFormat::Ndjson, b"", &[line(&at, "49900000")]);
        for (at, value) in [(format!("{at}.0"), "49900000.0"), (at.clone(), "4.99e7")] {
            let float = read_lines(ImportKind::Events, file::ImportFormat::Ndjson, b"", &[line(&at, value)]);
            assert_eq!((float, whole.1.len()), (whole.clone(), 0), "{value}");
        }
        let head = b"visitor,type,name,id,at_ms,value_micros";
        let cells = |at: &str, value: &str| format!("{of},track,purchase,e,{at},{value}");
        for (at, value) in [(at.clone(), "49900000"), (format!("{at}.0"), "49900000.0")] {
            assert_eq!(read_lines(ImportKind::Events, file::ImportFormat::Csv, head, &[cells(&at, value)]), whole);
        }
        for bad in ["49900000.5", "9007199254740994.0", "1e300"] {
            for (form, text) in
                [(file::ImportFormat::Ndjson, line(&at, bad)), (file::ImportFormat::Csv, cells(&at, bad))]
            {
                let (facts, refused) = read_lines(ImportKind::Events, form, head, &[text]);
                assert_eq!((facts.len(), refused.len()), (0, 1), "{bad}");
            }
        }
        let segment = format!(r#"{{"visitor":"{of}","segment":7.0,"expires_ms":{}.0}}"#, NOW + 86_400_000);
        assert_eq!(read_lines(ImportKind::Segments, file::ImportFormat::Ndjson, b"", &[segment]).0.len(), 1);
    }

    #[test]
    fn a_purchase_has_the_value_of_its_properties_as_at_the_edge() {
        let line = |properties: &str| {
            let of = visitor(1);
            format!(r#"{{"visitor":"{of}","type":"track","name":"purchase","id":"e","properties":{properties}}}"#)
        };
        let values = [r#"{"value":8.2}"#, r#"{"value_micros":8200000}"#, r#"{"value":1,"value_micros":8200000.0}"#];
        for properties in values {
            let (facts, refused) = read_lines(ImportKind::Events, file::ImportFormat::Ndjson, b"", &[line(properties)]);
            let value = facts.first().map(|fact| match &fact.what {
                FactKind::Track { value, .. } => value.map(Micros::get),
                _ => None,
            });
            assert_eq!((value, refused), (Some(Some(8_200_000)), Vec::new()), "{properties}");
        }
        for properties in [r#"{"value":"8"}"#, r#"{"value":-1}"#, "{}"] {
            let (facts, refused) = read_lines(ImportKind::Events, file::ImportFormat::Ndjson, b"", &[line(properties)]);
            assert_eq!((facts.len(), refused.len()), (0, 1), "{properties}");
        }
    }

    #[test]
    fn a_line_with_a_field_that_no_import_reads_is_refused_with_its_name() {
        let of = visitor(1);
        let lines = [
            (ImportKind::Events, format!(r#"{{"visitor":"{of}","type":"page","id":"e","at":{NOW}}}"#), "at"),
            (ImportKind::Segments, format!(r#"{{"visitor":"{of}","remove":[4242],"removes":[4242]}}"#), "removes"),
            (
                ImportKind::Segments,
                format!(r#"{{"visitor":"{of}","set":[{{"segment":1,"expires_ms":{NOW},"expiry":1}}]}}"#),
                "expiry",
            ),
            (
                ImportKind::Links,
                format!(r#"{{"visitor":"{of}","other":"{}","weight":0.5,"source":"match","why":"x"}}"#, visitor(2)),
                "why",
            ),
        ];
        for (kind, line, field) in lines {
            let (facts, refused) = read_lines(kind, file::ImportFormat::Ndjson, b"", std::slice::from_ref(&line));
            assert_eq!((facts.len(), refused.len()), (0, 1), "{line}");
            assert!(refused.concat().contains(&format!("`{field}`")), "{refused:?}");
            // A Parquet file may have columns that are not read, except within a list.
            let of_parquet = read_lines(kind, file::ImportFormat::Parquet, b"", &[line]);
            assert_eq!(of_parquet.1.len(), usize::from(field == "expiry"), "{of_parquet:?}");
        }
    }

    #[test]
    fn an_action_that_has_an_id_and_no_time_counts_once_whenever_it_comes() {
        let mut origin = Origin::new();
        let tenant = origin.tenant("demo").clone();
        let head = b"visitor,type,action,insertion,id,ad,ad_group,campaign,advertiser";
        let text = format!("{},action,impression,i-1,ev-1,4,3,2,1\n", visitor(1)).into_bytes();
        let mut counted = Vec::new();
        for day in 0..3 {
            origin.now = NOW + day * 86_400_000;
            let columns = rows::LineLayout::of(ImportKind::Events, file::ImportFormat::Csv, head).unwrap();
            let reader = rows::RowReader { tenant: &tenant, columns, file: format!("file {day}"), now: origin.now };
            let chunk = file::LineChunk { number: 0, first_line: 1, lines: 1, bytes: 0, text: text.clone() };
            let (facts, bad) = reader.read(&chunk);
            assert_eq!((facts.len(), bad.len()), (1, 0));
            origin.admin("demo", &facts.into_iter().map(|(_, checked)| checked.fact).collect::<Vec<_>>());
            counted.push(origin.profile("demo", visitor(1)).actions().len());
        }
        assert_eq!(counted, [1, 1, 1]);
    }

    #[test]
    fn an_interrupted_import_continues_at_its_position() {
        let mut origin = Origin::new();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("many.csv");
        // About forty megabytes: five transactions.
        let list: String = (0..1_000).map(|n| format!("{}:184104 ", n * 82)).collect();
        let line = |n: u32| format!("{},{list}\n", visitor(n));
        let text: String = std::iter::once("visitor,segments\n".to_owned()).chain((0..3_200).map(line)).collect();
        std::fs::write(&path, text).unwrap();
        let tenant = origin.tenant("demo").no;
        let mut run = |most: u32| {
            let said = Attribution::cli(None, None);
            let job = ImportRequest {
                rules: &origin.rules,
                tenant,
                kind: ImportKind::Segments,
                workers: 2,
                attribution: said,
                served: &|| false,
            };
            let mut calls = 0;
            super::run(&mut origin.conn, &job, &path, |_, bad| {
                assert!(bad.is_empty());
                calls += 1;
                calls < most
            })
        };
        let lines = |conn: &Connection| conn.query_row("SELECT lines FROM imports", [], |row| row.get(0).map(unsigned));
        assert!(matches!(run(2), Err(ImportError::Interrupted)));
        assert!(matches!(run(1), Err(ImportError::Interrupted)));
        let rest = run(u32::MAX).unwrap();
        assert_eq!((rest.lines, rest.repeats), (3_201, 0));
        assert!((1..3_200).contains(&rest.facts), "{}", rest.facts);
        assert_eq!(run(u32::MAX).unwrap().facts, 0);
        assert_eq!(lines(&origin.conn).unwrap(), 3_201);
        let all = "SELECT count(*) FROM visitors";
        assert_eq!(origin.conn.query_row(all, [], |row| row.get::<_, i64>(0)).unwrap(), 3_200);
        assert_eq!(origin.profile("demo", visitor(3_199)).segments().len(), 1_000);
    }
}
