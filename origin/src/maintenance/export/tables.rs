//! The tables of an export: the name of each column, its kind, and its source in the store. `docs/EXPORT.md` describes
//! the same tables; a test compares the two.
//!
//! The first column of every table is `tenant`, the tenant's name. References between rows use ids that are the same in
//! every store: the visitor for a row of `visitors`, the master for a row of `people`.

use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::limits;
use rusqlite::types::Value;

use crate::store::CheckedBytes;
use crate::store::tables::{erasure_keys, erasures, experiment_people, send_people, sends};

/// Version of the schema. It increases when a table or a column is added or removed.
pub const SCHEMA: u32 = 10;

/// The kind of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// A whole number from the first to the second bound, inclusive.
    Int(i64, i64),
    /// True or false.
    Bool,
    /// A text of at most this many bytes.
    Text(usize),
    /// A visitor: a UUID of version 7.
    Visitor,
    /// This many bytes, as hexadecimal digits.
    Hex(usize),
    /// At most [`limits::EXPORT_BYTES`] bytes.
    Bytes,
}

impl ColumnKind {
    /// Finds a kind by its name in [`TABLES`] and in the document.
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "int" => Self::Int(i64::MIN, i64::MAX),
            "uint" => Self::Int(0, i64::MAX),
            "u32" => Self::Int(0, u32::MAX.into()),
            "u16" => Self::Int(0, u16::MAX.into()),
            "u8" => Self::Int(0, u8::MAX.into()),
            "bool" => Self::Bool,
            "text" => Self::Text(limits::EXPORT_TEXT_BYTES),
            "json" => Self::Text(limits::EXPORT_BYTES),
            "visitor" => Self::Visitor,
            "hex6" => Self::Hex(6),
            "hex16" => Self::Hex(16),
            "hex32" => Self::Hex(32),
            "bytes" => Self::Bytes,
            _ => return None,
        })
    }
}

/// One value in the form of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileCell {
    /// Null.
    Null,
    /// A whole number.
    Int(i64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// The first column of every file.
pub const TENANT: ExportColumn = ExportColumn {
    name: "tenant",
    stored: "tenant",
    kind: ColumnKind::Text(limits::EXPORT_TEXT_BYTES),
    optional: false,
    is_checked: false,
};

/// The only column of a file of people.
pub(super) const PERSON: ExportColumn =
    ExportColumn { name: "person", stored: "person", kind: ColumnKind::Visitor, optional: false, is_checked: false };

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportColumn {
    /// Its name in the files.
    pub name: &'static str,
    /// Its name in the store.
    stored: &'static str,
    /// The kind of its values.
    pub kind: ColumnKind,
    /// Whether a value may be null.
    pub optional: bool,
    /// Whether the store has its bytes as [`CheckedBytes`]. The files have them without the checksum.
    is_checked: bool,
}

impl ExportColumn {
    /// Parses `name kind` or `name=stored kind`. `kind?` marks an optional column, and `checked bytes` is
    /// [`CheckedBytes`].
    fn parse(spec: &'static str) -> Option<Self> {
        let (names, kind) = spec.trim().split_once(' ')?;
        let (name, stored) = names.split_once('=').unwrap_or((names, names));
        let optional = kind.ends_with('?');
        let kind = kind.trim_end_matches('?');
        let (kind, is_checked) = kind.strip_prefix("checked ").map_or((kind, false), |kind| (kind, true));
        Some(Self { name, stored, kind: ColumnKind::of(kind)?, optional, is_checked })
    }

    /// Converts a stored value to the form of the files; `None` if the value does not fit the column.
    #[must_use]
    pub fn cell(&self, value: Value) -> Option<FileCell> {
        Some(match (self.kind, value) {
            (_, Value::Null) if self.optional => FileCell::Null,
            (ColumnKind::Int(..), Value::Integer(n)) => FileCell::Int(n),
            (ColumnKind::Bool, Value::Integer(n)) => FileCell::Bool(n != 0),
            (ColumnKind::Text(_), Value::Text(text)) => FileCell::Text(text),
            (ColumnKind::Visitor, Value::Blob(bytes)) => {
                FileCell::Text(VisitorId::from_bytes(bytes.try_into().ok()?).ok()?.to_string())
            }
            (ColumnKind::Hex(length), Value::Blob(bytes)) if bytes.len() == length => FileCell::Text(to_hex(&bytes)),
            (ColumnKind::Bytes, Value::Blob(bytes)) if self.is_checked => {
                FileCell::Bytes(CheckedBytes::open(&bytes).ok()?.to_vec())
            }
            (ColumnKind::Bytes, Value::Blob(bytes)) => FileCell::Bytes(bytes),
            _ => return None,
        })
    }

    /// Converts a value of a file to the form of the store.
    ///
    /// # Errors
    /// A description of the expected value.
    pub fn value(&self, cell: &FileCell) -> Result<Value, String> {
        let needed = |what: &str| Err(format!("`{}` is not {what}", self.name));
        match (self.kind, cell) {
            (_, FileCell::Null) if self.optional => Ok(Value::Null),
            (_, FileCell::Null) => needed("allowed to be null"),
            (ColumnKind::Int(least, most), FileCell::Int(n)) if (least..=most).contains(n) => Ok(Value::Integer(*n)),
            (ColumnKind::Int(least, most), _) => needed(&format!("a whole number from {least} to {most}")),
            (ColumnKind::Bool, FileCell::Bool(yes)) => Ok(Value::Integer((*yes).into())),
            (ColumnKind::Bool, _) => needed("true or false"),
            (ColumnKind::Text(most), FileCell::Text(text)) if text.len() <= most => Ok(Value::Text(text.clone())),
            (ColumnKind::Text(most), _) => needed(&format!("a text of at most {most} bytes")),
            (ColumnKind::Visitor, FileCell::Text(text)) => match text.parse::<VisitorId>() {
                Ok(visitor) => Ok(Value::Blob(visitor.as_bytes().to_vec())),
                Err(_) => needed("a UUID of version 7"),
            },
            (ColumnKind::Visitor, _) => needed("a UUID of version 7"),
            (ColumnKind::Hex(length), FileCell::Text(text)) => {
                match from_hex(text).filter(|bytes| bytes.len() == length) {
                    Some(bytes) => Ok(Value::Blob(bytes)),
                    None => needed(&format!("{} hexadecimal digits", 2 * length)),
                }
            }
            (ColumnKind::Hex(length), _) => needed(&format!("{} hexadecimal digits", 2 * length)),
            (ColumnKind::Bytes, FileCell::Bytes(bytes)) if bytes.len() <= limits::EXPORT_BYTES => {
                Ok(Value::Blob(if self.is_checked { CheckedBytes::seal(bytes) } else { bytes.clone() }))
            }
            (ColumnKind::Bytes, _) => needed(&format!("a blob of at most {} bytes", limits::EXPORT_BYTES)),
        }
    }
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// The way in which a table's rows are read from the store and written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowSource {
    /// Rows of a tenant, ordered by these columns of the store.
    Tenant(&'static str),
    /// Rows of a row in `visitors`, ordered by these columns.
    Visitor(&'static str),
    /// Rows of a row in `people`, ordered by these columns.
    Person(&'static str),
    /// A statement to read, with the tenant as its parameter, and one to write, with tenant and columns.
    Own(&'static str, &'static str),
    /// Many rows from one packed value of a visitor.
    Packed(PackedPart),
}

/// A value of a visitor that is packed in the store and many rows in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackedPart {
    /// Its segments.
    Segments,
    /// Its attributes.
    Attributes,
    /// Its actions.
    Actions,
    /// Start of the complete events, and whether event names were left out; no row if nothing is missing.
    EventGaps,
    /// Its events by name.
    Events,
}

/// A table of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportTable {
    /// Its name in files and in the store.
    pub name: &'static str,
    /// Its columns without the tenant, in the notation of `ExportColumn::parse`.
    pub(super) columns: &'static str,
    /// The source of its rows.
    pub place: RowSource,
}

impl ExportTable {
    /// Its columns without the tenant.
    #[must_use]
    pub fn columns(&self) -> Vec<ExportColumn> {
        self.columns.split(", ").filter_map(ExportColumn::parse).collect()
    }

    /// The packed value of a visitor that holds its rows.
    #[must_use]
    pub fn packed(&self) -> Option<PackedPart> {
        if let RowSource::Packed(packed) = self.place { Some(packed) } else { None }
    }

    /// Its columns in the files, the tenant first.
    #[must_use]
    pub fn file_columns(&self) -> Vec<ExportColumn> {
        std::iter::once(TENANT).chain(self.columns()).collect()
    }

    /// The SQL statement that reads its rows; the only parameter is the tenant. `None` for packed rows.
    #[must_use]
    pub fn read(&self) -> Option<String> {
        let columns = self.columns();
        let stored = |from: usize, of: &str| -> String {
            columns.iter().skip(from).map(|column| format!("{of}{}", column.stored)).collect::<Vec<_>>().join(", ")
        };
        let order = |keys: &str| keys.split(", ").map(|key| format!("x.{key}")).collect::<Vec<_>>().join(", ");
        let name = self.name;
        Some(match self.place {
            RowSource::Tenant(keys) => {
                format!("SELECT {} FROM {name} WHERE tenant = ?1 ORDER BY {keys}", stored(0, ""))
            }
            RowSource::Visitor(keys) => format!(
                "SELECT v.visitor, {} FROM visitors v CROSS JOIN {name} x ON x.visitor = v.row
                 WHERE v.tenant = ?1 ORDER BY v.visitor, {}",
                stored(1, "x."),
                order(keys)
            ),
            RowSource::Person(keys) => format!(
                "SELECT p.master, {} FROM people p CROSS JOIN {name} x ON x.person = p.person
                 WHERE p.tenant = ?1 ORDER BY p.master, {}",
                stored(1, "x."),
                order(keys)
            ),
            RowSource::Own(read, _) => read.to_owned(),
            RowSource::Packed(_) => return None,
        })
    }

    /// The SQL statement that writes one row, with tenant and columns as parameters. `None` for packed rows.
    #[must_use]
    pub fn write(&self) -> Option<String> {
        let columns = self.columns();
        let names = |from| columns.iter().skip(from).map(|column| column.stored).collect::<Vec<_>>().join(", ");
        let values = |from| (from..columns.len()).map(|n| format!("?{}", n + 2)).collect::<Vec<_>>().join(", ");
        let name = self.name;
        Some(match self.place {
            RowSource::Tenant(_) => format!("INSERT INTO {name} (tenant, {}) VALUES (?1, {})", names(0), values(0)),
            RowSource::Visitor(_) => format!(
                "INSERT INTO {name} (visitor, {}) SELECT row, {} FROM visitors WHERE tenant = ?1 AND visitor = ?2",
                names(1),
                values(1)
            ),
            RowSource::Person(_) => format!(
                "INSERT INTO {name} (person, {}) SELECT person, {} FROM people WHERE tenant = ?1 AND master = ?2",
                names(1),
                values(1)
            ),
            RowSource::Own(_, write) => write.to_owned(),
            RowSource::Packed(_) => return None,
        })
    }
}

const fn define_table(name: &'static str, columns: &'static str, place: RowSource) -> ExportTable {
    ExportTable { name, columns, place }
}

/// All tables, in the order in which they are written and read. A table comes after the tables that it refers to.
pub const TABLES: [ExportTable; 41] = [
    define_table(
        "people",
        "master visitor, devices u32, weight u16, epoch u32, random hex16",
        RowSource::Own(
            "SELECT master, devices, weight, epoch & 4294967295, random FROM people
             WHERE tenant = ?1 ORDER BY master, person",
            "INSERT INTO people (tenant, master, devices, weight, epoch, changed, random)
             VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6)",
        ),
    ),
    define_table(
        "visitors",
        "visitor visitor, master visitor, last_seen_ms uint, withdrawn_ms uint?, weight u16, profile bytes, first_ms uint?, \
         last_ms uint?, pages uint, sessions uint, purchases uint, revenue_micros int",
        RowSource::Own(
            "SELECT v.visitor, p.master, v.last_seen, v.withdrawn, v.weight, v.profile FROM visitors v
             LEFT JOIN people p ON p.person = v.person WHERE v.tenant = ?1 ORDER BY v.visitor",
            "INSERT INTO visitors (tenant, visitor, last_seen, version, restore, published, withdrawn, weight, person, profile,
                 events)
             SELECT ?1, ?2, ?4, 1, 0, 0, ?5, ?6, person, ?7, x'41d912ff0000' FROM people WHERE tenant = ?1 AND master = ?3",
        ),
    ),
    define_table("attribute_names", "token u16, name text, kind u8", RowSource::Tenant("token")),
    define_table("event_names", "name text, source u8, since_ms=since uint", RowSource::Tenant("name")),
    define_table(
        "segments",
        "visitor visitor, segment u32, expiry_hour u32?, attributes text, written_ms uint, write_order uint",
        RowSource::Packed(PackedPart::Segments),
    ),
    define_table(
        "attributes",
        "visitor visitor, token u16, name text, value json?, written_ms uint, write_order uint",
        RowSource::Packed(PackedPart::Attributes),
    ),
    define_table(
        "actions",
        "visitor visitor, minute u32, action_type u8, view_type u8, ad u32, ad_group u32, campaign u32, \
         advertiser u32, insertion hex6",
        RowSource::Packed(PackedPart::Actions),
    ),
    // A visitor without a row in both tables has no events, as the insert into `visitors` stores it.
    define_table("event_gaps", "visitor visitor, since_minute u32, left_out bool", RowSource::Packed(PackedPart::EventGaps)),
    define_table(
        "events",
        "visitor visitor, name text, count uint, minutes_from u32, minutes text, days_from u32, days text",
        RowSource::Packed(PackedPart::Events),
    ),
    define_table(
        "purchases",
        "visitor visitor, minute u32, count u32, value_micros int",
        RowSource::Own(
            "SELECT v.visitor, x.place & 4294967295, x.count, x.value FROM visitors v
         CROSS JOIN purchases x ON x.place >= v.row << 32 AND x.place < (v.row + 1) << 32
         WHERE v.tenant = ?1 ORDER BY v.visitor, x.place",
            "INSERT INTO purchases (place, count, value)
         SELECT row << 32 | ?3, ?4, ?5 FROM visitors WHERE tenant = ?1 AND visitor = ?2",
        ),
    ),
    define_table(
        "purchases_unpaid",
        "visitor visitor, id int, minute u32, received_ms=received uint, value_micros=value int, until_ms=until uint, \
         order_hash int?",
        RowSource::Visitor("id"),
    ),
    define_table("orders_paid", "visitor visitor, order_hash int, minute u32", RowSource::Visitor("order_hash")),
    define_table(
        "exposures",
        "visitor visitor, experiment u32, arm u8, at_ms=at uint, mixed bool",
        RowSource::Visitor("experiment"),
    ),
    define_table("offer_codes", "visitor visitor, campaign u32, number u32, at_ms=at uint", RowSource::Visitor("campaign")),
    define_table(
        "conversions",
        "visitor visitor, received_ms=received uint, id int, name text, value_micros=value int",
        RowSource::Visitor("received, id"),
    ),
    define_table("fact_ids", "visitor visitor, day u16, part u32, ids checked bytes", RowSource::Visitor("day, part")),
    define_table("fact_ids_over", "visitor visitor, day u16, id int", RowSource::Visitor("day, id")),
    define_table(
        "evidence",
        "visitor visitor, kind u8, hash hex16, source u8, weight u16, first_ms=first uint, last_ms=last uint, \
         cancelled_ms=cancelled uint?, flag u8?",
        RowSource::Tenant("visitor, kind, hash, source, weight"),
    ),
    define_table("cancellations", "visitor visitor, kind u8, hash hex16, at_ms=at uint", RowSource::Tenant("visitor, kind, hash")),
    define_table("alternates", "kind u8, hash hex16, canonical hex16", RowSource::Tenant("kind, hash")),
    define_table(
        "lookups",
        "kind u8, hash hex16, visitor visitor?, second visitor?, third visitor?, since_ms uint",
        RowSource::Own(
            "SELECT kind, hash, nullif(substr(visitors, 1, 16), x''), nullif(substr(visitors, 17, 16), x''),
         nullif(substr(visitors, 33, 16), x''), since FROM lookups WHERE tenant = ?1 ORDER BY kind, hash",
            "INSERT INTO lookups (tenant, kind, hash, visitors, since, version)
         VALUES (?1, ?2, ?3, CAST(ifnull(?4, x'') || ifnull(?5, x'') || ifnull(?6, x'') AS BLOB), ?7, 1)",
        ),
    ),
    define_table("cuts", "master visitor, visitor visitor, at_ms=at uint", RowSource::Person("visitor")),
    define_table("erased", "visitor visitor, at_ms=at uint, receipt hex16", RowSource::Tenant("visitor")),
    define_table("erased_ids", "kind u8, hash hex16, at_ms=at uint, receipt hex16", RowSource::Tenant("kind, hash")),
    define_table(
        "erasures",
        "receipt hex16, requested_ms uint, stored_ms uint, log_ms uint?",
        RowSource::Own(erasures::ERASURES_OF_TENANT, erasures::ERASURES_INSERT_WITHOUT_LOG),
    ),
    define_table(
        "erasure_keys",
        "receipt hex16, kind u16, subject hex16, written_ms uint?",
        RowSource::Own(erasure_keys::ERASURE_KEYS_WITH_SWEPT_OF_TENANT, erasure_keys::ERASURE_KEYS_INSERT_WITH_WRITTEN),
    ),
    define_table(
        "audit",
        "row uint, id hex16, at_ms=at uint, what text, by text, name text?, role text?, reason text?, visitor visitor?, \
         other visitor?, kind u8?, hash hex16?, object text?, count uint",
        RowSource::Tenant("row"),
    ),
    define_table(
        "catalogues",
        "version u32, document json, sha256 hex32, experiments json, budgets json, limited json, \
         applied_ms=applied uint, by text, replaced_ms=replaced uint?",
        RowSource::Tenant("version"),
    ),
    define_table("catalogue_current", "version u32, since_ms=since uint", RowSource::Tenant("version")),
    define_table("catalogue_codes", "sort text, id text, code u32, conversion text?, conversion_until_ms=conversion_until uint?",
        RowSource::Tenant("sort, id"),
    ),
    define_table("models", "version u32, at_ms=at uint, bytes checked bytes, report json", RowSource::Tenant("version")),
    define_table("spend", "campaign u32, day int, nanos int", RowSource::Tenant("campaign, day")),
    define_table("anonymous_facts", "day int, id int", RowSource::Tenant("day, id")),
    define_table("offer_codes_given", "campaign u32, number u32", RowSource::Tenant("campaign, number")),
    define_table(
        "experiment_people",
        "master visitor, experiment u32, arm int, exposed_ms uint, converted_ms uint?, hours checked bytes",
        RowSource::Own(
            "SELECT p.master, x.experiment, x.arm, x.exposed, x.converted, x.hours FROM people p
             CROSS JOIN experiment_people x ON x.person = p.person
             WHERE p.tenant = ?1 ORDER BY p.master, x.experiment",
            experiment_people::EXPERIMENT_PEOPLE_INSERT_BY_MASTER,
        ),
    ),
    define_table(
        "experiment_hours",
        "experiment u32, arm int, hour u32, exposed int, cohort_converted int, cohort_conversions int, \
         cohort_revenue_micros=cohort_revenue int, converted int, conversions int, revenue_micros=revenue int",
        RowSource::Tenant("experiment, arm, hour"),
    ),
    define_table(
        "experiment_delays",
        "experiment u32, hour u32, delay uint, people int",
        RowSource::Tenant("experiment, hour, delay"),
    ),
    define_table(
        "audiences",
        "segment u32, filter json?, hours u32, every_hours u32, due_ms=due uint?, refreshed_ms=refreshed uint?, members uint",
        RowSource::Tenant("segment"),
    ),
    define_table(
        "audience_members",
        "segment u32, visitor visitor, until_hour=until u32",
        RowSource::Tenant("segment, visitor"),
    ),
    define_table(
        "sends",
        "name text, filter json, count u32, experiment text?, webhook bool, per_second u32, random int, \
         requested_ms uint, chosen u32?, next u32, delivered u32, control u32, gone u32, merged u32, left u32, is_over bool",
        RowSource::Own(sends::SENDS_OF_TENANT, sends::SENDS_INSERT_CLOSED),
    ),
    define_table(
        "send_people",
        "send text, place u32, visitor visitor, arm u8?, outcome u8?, at_ms uint?",
        RowSource::Own(sends::SENDS_PEOPLE_OF_TENANT, send_people::SEND_PEOPLE_INSERT_BY_SEND_NAME),
    ),
];
