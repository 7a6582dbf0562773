//! Parquet files as other tools write them.

use std::path::{Path, PathBuf};

use ::parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use ::parquet::column::writer::ColumnWriter;
use ::parquet::data_type::{ByteArray, Decimal, FixedLenByteArray, Int96};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use causeway_shared::base::ids::{Millis, OrderHash};
use causeway_shared::facts::fact::FactKind;
use serde_json::json;

use super::*;
use crate::base::attribution::Attribution;
use crate::base::clock;
use crate::maintenance::import::{ImportError, ImportKind, ImportProgress, ImportRequest, file, rows};
use crate::testing::{NOW, Origin, page, visitor};

#[test]
fn what_json_has_no_form_for_is_taken_for_nothing_else() {
    let decimal = || Field::Decimal(Decimal::from_i64(1_800_000_000_000, 18, 0));
    let nested = Field::Group(Row::new(vec![("price".to_owned(), decimal())]));
    for field in [decimal(), Field::Date(20_000), Field::TimeMicros(5), Field::Bytes(vec![0xff].into()), nested] {
        let row = Row::new(vec![("at_ms".to_owned(), field), ("id".to_owned(), Field::Null)]);
        let line = row_object(&row, &Type::group_type_builder("message").build().unwrap());
        let line = line.as_object().unwrap();
        assert_eq!(line.len(), 1);
        let stamp = || line["at_ms"].clone();
        assert!(serde_json::from_value::<Option<u64>>(stamp()).is_err(), "{line:?}");
        assert!(serde_json::from_value::<Option<String>>(stamp()).is_err(), "{line:?}");
        assert!(serde_json::from_value::<Option<Map<String, Value>>>(stamp()).is_err(), "{line:?}");
    }
    let nothing = Field::Group(Row::new(vec![("x".to_owned(), Field::Null)]));
    assert_eq!(value_of(&nothing, None), Some(json!({})));
}

#[test]
fn a_map_with_text_keys_is_an_object() {
    const SCHEMA: &str = "message events { optional group properties (MAP) { repeated group key_value {
        required binary key (UTF8); optional int32 value; } } }";
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::clone(&schema), Arc::default()).unwrap();
    let mut rows = writer.next_row_group().unwrap();
    while let Some(mut column) = rows.next_column().unwrap() {
        let written = match column.untyped() {
            ColumnWriter::ByteArrayColumnWriter(keys) => {
                keys.write_batch(&["size".into(), "x".into()], Some(&[2, 2]), Some(&[0, 1])).unwrap()
            }
            ColumnWriter::Int32ColumnWriter(values) => values.write_batch(&[4], Some(&[3, 2]), Some(&[0, 1])).unwrap(),
            _ => unreachable!(),
        };
        assert!(written > 0);
        column.close().unwrap();
    }
    rows.close().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, writer.into_inner().unwrap()).unwrap();
    let mut rows = SerializedFileReader::new(file.reopen().unwrap()).unwrap().into_iter();
    assert_eq!(row_object(&rows.next().unwrap().unwrap(), &schema), json!({ "properties": { "size": 4 } }));
}

/// The values of a column, one per row.
enum ColumnValues {
    Text(Vec<String>),
    Fixed(Vec<Vec<u8>>),
    Int(Vec<i32>),
    Long(Vec<Option<i64>>),
    Days96(Vec<[u32; 3]>),
    Double(Vec<f64>),
}

/// Writes a file with these columns.
fn write(path: &Path, schema: &str, codec: Compression, columns: Vec<ColumnValues>) {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let form = Arc::new(WriterProperties::builder().set_compression(codec).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, form).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for values in columns {
        let mut column = group.next_column().unwrap().unwrap();
        match (column.untyped(), values) {
            (ColumnWriter::ByteArrayColumnWriter(to), ColumnValues::Text(all)) => {
                let all: Vec<ByteArray> = all.iter().map(|text| text.as_str().into()).collect();
                to.write_batch(&all, None, None)
            }
            (ColumnWriter::FixedLenByteArrayColumnWriter(to), ColumnValues::Fixed(all)) => {
                let all: Vec<FixedLenByteArray> = all.into_iter().map(Into::into).collect();
                to.write_batch(&all, None, None)
            }
            (ColumnWriter::Int32ColumnWriter(to), ColumnValues::Int(all)) => to.write_batch(&all, None, None),
            (ColumnWriter::Int64ColumnWriter(to), ColumnValues::Long(all)) => {
                let there: Vec<i16> = all.iter().map(|value| value.is_some().into()).collect();
                let all: Vec<i64> = all.into_iter().flatten().collect();
                to.write_batch(&all, Some(&there), None)
            }
            (ColumnWriter::Int96ColumnWriter(to), ColumnValues::Days96(all)) => {
                let all: Vec<Int96> = all.into_iter().map(|parts| Int96::from(parts.to_vec())).collect();
                to.write_batch(&all, None, None)
            }
            (ColumnWriter::DoubleColumnWriter(to), ColumnValues::Double(all)) => to.write_batch(&all, None, None),
            _ => unreachable!(),
        }
        .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    std::fs::write(path, writer.into_inner().unwrap()).unwrap();
}

fn import(origin: &mut Origin, kind: ImportKind, path: &Path) -> Result<(ImportProgress, Vec<String>), ImportError> {
    let (tenant, said) = (origin.tenant("demo").no, Attribution::cli(None, None));
    let job = ImportRequest { rules: &origin.rules, tenant, kind, workers: 1, attribution: said, served: &|| false };
    let mut refused = Vec::new();
    let done = crate::maintenance::import::run(&mut origin.conn, &job, path, |_, bad| {
        refused.extend(bad.iter().map(|bad| bad.message.clone()));
        true
    })?;
    Ok((done, refused))
}

/// The facts of a file of events.
fn events(path: &Path, now: Millis) -> Vec<(Millis, FactKind)> {
    let origin = Origin::new();
    let tenant = origin.tenant("demo").clone();
    let file = file::ImportFile::open(path).unwrap();
    file.check_types(ImportKind::Events).unwrap();
    let columns = rows::LineLayout::of(ImportKind::Events, file.form(), &[]).unwrap();
    let reader = rows::RowReader { tenant: &tenant, columns, file: "a file".to_owned(), now };
    let mut facts = Vec::new();
    let read = |chunk: file::LineChunk| {
        let (of, bad) = reader.read(&chunk);
        assert_eq!(bad, []);
        facts.extend(of.into_iter().map(|(_, checked)| (checked.fact.at, checked.fact.what)));
        true
    };
    file.chunks(0, read).unwrap();
    facts
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.parquet");
    (folder, path)
}

const FLAT: &str =
    "message rows { required binary visitor (UTF8); required int32 segment; optional int64 expires_ms; }";

/// Three rows per visitor: in segments 1 and 2, and not in 3.
fn flat(people: u32) -> Vec<ColumnValues> {
    let all = || (0..people).flat_map(|n| (1..=3).map(move |segment| (n, segment)));
    let expiry = |segment: i32| (segment < 3).then(|| i64::try_from(clock::now() + 86_400_000).unwrap());
    vec![
        ColumnValues::Text(all().map(|(n, _)| visitor(n).to_string()).collect()),
        ColumnValues::Int(all().map(|(_, segment)| segment).collect()),
        ColumnValues::Long(all().map(|(_, segment)| expiry(segment)).collect()),
    ]
}

#[test]
fn flat_rows_are_read_in_every_codec_that_other_tools_write() {
    for codec in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
        Compression::LZ4,
        Compression::BROTLI(BrotliLevel::default()),
    ] {
        let (_folder, path) = folder();
        write(&path, FLAT, codec, flat(40));
        let mut origin = Origin::new();
        let (done, refused) = import(&mut origin, ImportKind::Segments, &path).unwrap();
        assert_eq!((done.facts, refused), (120, Vec::new()), "{codec}");
        assert_eq!(origin.profile("demo", visitor(39)).segments().len(), 3, "{codec}");
    }
}

#[test]
fn flat_rows_of_ndjson_are_those_of_parquet_and_one_without_an_expiry_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.ndjson");
    let row = |segment: u32, expiry: Value| json!({ "visitor": visitor(1).to_string(), "segment": segment, "expires_ms": expiry });
    let bare = json!({ "visitor": visitor(1).to_string(), "segment": 9 });
    let lines = [row(1, (clock::now() + 86_400_000).into()), row(2, Value::Null), bare].map(|line| line.to_string());
    std::fs::write(&path, lines.join("\n")).unwrap();
    let mut origin = Origin::new();
    let (done, refused) = import(&mut origin, ImportKind::Segments, &path).unwrap();
    assert_eq!(done.facts, 2);
    assert!(matches!(&refused[..], [one] if one.contains("expires_ms")), "{refused:?}");
}

#[test]
fn times_of_every_unit_are_read_as_milliseconds() {
    let at = NOW - NOW % 1_000 + 7;
    let ms = i64::try_from(at).unwrap();
    let times = |form: &str, column: ColumnValues| {
        let (_folder, path) = folder();
        let schema = format!("message rows {{ required binary visitor (UTF8); required binary type (UTF8); {form}; }}");
        let kind = ColumnValues::Text(vec!["page".to_owned()]);
        write(
            &path,
            &schema,
            Compression::SNAPPY,
            vec![ColumnValues::Text(vec![visitor(1).to_string()]), kind, column],
        );
        events(&path, NOW + 3_600_000).into_iter().map(|(at, _)| at).collect::<Vec<_>>()
    };
    for (form, per_ms) in [
        ("int64 at_ms", 1),
        ("int64 at_ms (TIMESTAMP_MILLIS)", 1),
        ("int64 at_ms (TIMESTAMP_MICROS)", 1_000),
        ("int64 at_ms (TIMESTAMP(MILLIS,false))", 1),
        ("int64 at_ms (TIMESTAMP(MICROS,false))", 1_000),
        ("int64 at_ms (TIMESTAMP(NANOS,true))", 1_000_000),
        ("int64 at_ms (TIMESTAMP(NANOS,false))", 1_000_000),
    ] {
        let column = ColumnValues::Long(vec![Some(ms * per_ms + per_ms / 2)]);
        assert_eq!(times(&format!("optional {form}"), column), [at], "{form}");
    }
    assert_eq!(times("required double at_ms", ColumnValues::Double(vec![ms as f64])), [at]);
    // The form of Spark: nanoseconds of the day, and the Julian day.
    let (day, nanos) = (at / 86_400_000 + 2_440_588, at % 86_400_000 * 1_000_000);
    let parts = [nanos as u32, (nanos >> 32) as u32, day as u32];
    assert_eq!(times("required int96 at_ms", ColumnValues::Days96(vec![parts])), [at]);
}

#[test]
fn columns_of_uuids_and_json_are_read_and_columns_nobody_asks_for_may_have_any_type() {
    let schema = "message rows { required fixed_len_byte_array(16) visitor (UUID); required binary type (UTF8);
        required fixed_len_byte_array(16) id (UUID); required binary name (UTF8); required binary properties (JSON);
        required fixed_len_byte_array(12) took (INTERVAL); required int32 day (DATE); }";
    let text = |text: &str| ColumnValues::Text(vec![text.to_owned()]);
    let (_folder, path) = folder();
    let id = || ColumnValues::Fixed(vec![visitor(7).as_bytes().to_vec()]);
    let columns = vec![
        id(),
        text("track"),
        id(),
        text("seen"),
        text("{\"size\":4}"),
        ColumnValues::Fixed(vec![vec![1; 12]]),
        ColumnValues::Int(vec![9]),
    ];
    write(&path, schema, Compression::SNAPPY, columns);
    let found = events(&path, NOW);
    let [(_, FactKind::Track { name, properties, .. })] = &found[..] else { unreachable!("{found:?}") };
    assert_eq!((name.as_str(), properties.as_deref()), ("seen", Some("{\"size\":4}")));
    let mut origin = Origin::new();
    origin.send("demo", &[page(visitor(7), 1, NOW)]);
    assert_eq!(import(&mut origin, ImportKind::Events, &path).unwrap().0.facts, 1);
    assert_eq!(uuid_text(visitor(7).as_bytes()).unwrap(), visitor(7).to_string());
}

#[test]
fn numbers_and_texts_of_every_form_of_file_name_one_order() {
    let order_of = |path: &Path| match &events(path, NOW)[..] {
        [(_, FactKind::Track { order: Some(order), .. })] => *order,
        found => unreachable!("{found:?}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let expected = OrderHash::of("1001");
    for (column, values) in [
        ("required binary order_id (UTF8)", ColumnValues::Text(vec!["1001".to_owned()])),
        ("required int32 order_id", ColumnValues::Int(vec![1_001])),
        ("optional int64 order_id", ColumnValues::Long(vec![Some(1_001)])),
        // The form of pandas for whole numbers of which some are missing.
        ("required double order_id", ColumnValues::Double(vec![1_001.0])),
    ] {
        let path = folder.path().join("orders.parquet");
        let schema = format!(
            "message rows {{ required binary visitor (UTF8); required binary type (UTF8); required binary name (UTF8);
            required binary id (UTF8); optional int64 value_micros; {column}; }}"
        );
        let text = |text: &str| ColumnValues::Text(vec![text.to_owned()]);
        let own = [text(&visitor(1).to_string()), text("track"), text("purchase"), text("e-1")];
        let columns = own.into_iter().chain([ColumnValues::Long(vec![Some(5)]), values]).collect();
        write(&path, &schema, Compression::SNAPPY, columns);
        assert_eq!(order_of(&path), expected, "{column}");
    }
}

#[test]
fn a_column_of_a_type_that_is_not_read_is_named_with_its_type() {
    let refused = |kind: ImportKind, columns: &str, all: Vec<ColumnValues>| {
        let (_folder, path) = folder();
        write(&path, &format!("message rows {{ {columns} }}"), Compression::SNAPPY, all);
        match import(&mut Origin::new(), kind, &path) {
            Err(e) => e.to_string(),
            Ok(done) => unreachable!("{done:?}"),
        }
    };
    let text = |text: &str| ColumnValues::Text(vec![text.to_owned()]);
    let bytes = |bytes: usize| ColumnValues::Fixed(vec![vec![0; bytes]]);
    let days = refused(
        ImportKind::Events,
        "required binary visitor (UTF8); required binary type (UTF8); required int32 at_ms (DATE);",
        vec![text("x"), text("page"), ColumnValues::Int(vec![20_000])],
    );
    assert!(
        days.contains("the column `at_ms` has the type `REQUIRED INT32 at_ms (DATE)`: expected a timestamp"),
        "{days}"
    );
    let money = refused(
        ImportKind::Events,
        "required binary visitor (UTF8); required binary type (UTF8); required int64 value_micros (DECIMAL(18,2));",
        vec![text("x"), text("page"), ColumnValues::Long(vec![Some(1)])],
    );
    assert!(money.contains("`value_micros`") && money.contains("DECIMAL(18,2)"), "{money}");
    let hour = refused(
        ImportKind::Segments,
        "required binary visitor (UTF8); required int32 segment; optional int64 expires_ms (TIME(NANOS,true));",
        vec![text("x"), ColumnValues::Int(vec![1]), ColumnValues::Long(vec![Some(1)])],
    );
    assert!(hour.contains("`expires_ms`") && hour.contains("TIME(NANOS"), "{hour}");
    let raw = refused(ImportKind::Links, "required fixed_len_byte_array(16) visitor;", vec![bytes(16)]);
    assert!(raw.contains("`visitor`") && raw.contains("text or a UUID"), "{raw}");
    let number = refused(ImportKind::Links, "required int64 other;", vec![ColumnValues::Long(vec![Some(1)])]);
    assert!(number.contains("`other`") && number.contains("INT64"), "{number}");
}
