//! Rows of the store as files have them: a packed value of the store is many rows here, in both directions.

use std::collections::BTreeMap;

use causeway_shared::base::ids::Millis;
use causeway_shared::base::limits;
use causeway_shared::base::time::{HourStamp, Minute};
use causeway_shared::facts::actions::{ActionList, ActionType, AdAction, AdEntity, InsertionHash, ViewType};
use causeway_shared::facts::attributes::{
    AttributeMap, AttributeValue as Attribute, FiniteNumber, NameDictionary, NameToken, ValueKind,
};
use causeway_shared::facts::events::{EventTimes, NewestTimes, VisitorEvents};
use causeway_shared::facts::segments::{SegmentId, SegmentMap, SegmentState, WriteStamp};
use causeway_shared::profiles::profile::Profile;
use causeway_shared::wire::profile;
use rusqlite::Connection;
use rusqlite::types::Value;

use super::tables::{ExportColumn, ExportTable, FileCell, PackedPart, to_hex};
use crate::base::integers::{signed, unsigned};
use crate::profiles::buckets::{self, packed_actions};
use crate::profiles::parts;
use crate::store::tables::visitors;
use crate::store::{CheckedBytes, StoreError, TenantNo, VisitorRow, names, visitor_at};

/// Passes all rows of a tenant in a table to `give`, in order.
///
/// # Errors
/// Errors of `give`, and [`StoreError`].
pub(super) fn read<E: From<StoreError>>(
    conn: &Connection,
    table: &ExportTable,
    tenant: TenantNo,
    give: &mut dyn FnMut(Vec<FileCell>) -> Result<(), E>,
) -> Result<(), E> {
    let Some(read) = table.read() else { return read_packed(conn, table, tenant, give) };
    let columns = table.columns();
    let mut statement = conn.prepare(&read).map_err(StoreError::from)?;
    let stored = statement.column_count();
    let mut rows = statement.query([tenant.0]).map_err(StoreError::from)?;
    while let Some(row) = rows.next().map_err(StoreError::from)? {
        let cell = |(at, column): (usize, &ExportColumn)| {
            column.cell(row.get::<_, Value>(at)?).ok_or(StoreError::Corrupt { what: column.name })
        };
        let mut cells = columns.iter().take(stored).enumerate().map(cell).collect::<Result<Vec<_>, _>>()?;
        if table.name == "visitors"
            && let Some(FileCell::Bytes(core)) = cells.last()
        {
            let visitor = visitor_at(row, 0).map_err(StoreError::from)?;
            cells.extend(profile_cells(&profile::decode_profile(visitor, core).map_err(StoreError::from)?));
        }
        give(cells)?;
    }
    Ok(())
}

/// The content of a packed profile as cells, for readers of the files.
pub(super) fn profile_cells(core: &Profile) -> [FileCell; 6] {
    let (totals, seen) = (core.totals(), core.seen());
    let time = |at: Option<Millis>| at.map_or(FileCell::Null, |at| FileCell::Int(signed(at)));
    let [pages, sessions, purchases] =
        [totals.pages, totals.sessions, totals.purchases].map(|count| FileCell::Int(signed(count)));
    [
        time(seen.map(|seen| seen.0)),
        time(seen.map(|seen| seen.1)),
        pages,
        sessions,
        purchases,
        FileCell::Int(totals.revenue.get()),
    ]
}

fn read_packed<E: From<StoreError>>(
    conn: &Connection,
    table: &ExportTable,
    tenant: TenantNo,
    give: &mut dyn FnMut(Vec<FileCell>) -> Result<(), E>,
) -> Result<(), E> {
    let names = names::load_dictionary(conn, tenant)?;
    let visitor_column = table.columns().first().copied();
    let mut statement = conn.prepare(visitors::VISITORS_PACKED_OF_TENANT).map_err(StoreError::from)?;
    let mut rows = statement.query([tenant.0]).map_err(StoreError::from)?;
    while let Some(row) = rows.next().map_err(StoreError::from)? {
        let get = |column: usize| -> Result<Vec<u8>, StoreError> { Ok(row.get::<_, CheckedBytes>(column)?.0) };
        let found = match table.packed() {
            Some(PackedPart::Segments) => segment_rows(&profile::decode_segments(&get(2)?).map_err(StoreError::from)?),
            Some(PackedPart::Attributes) => {
                attribute_rows(&profile::decode_attributes(&get(3)?).map_err(StoreError::from)?, &names)?
            }
            Some(PackedPart::Actions) => action_rows(conn, row.get(0).map_err(StoreError::from)?)?,
            Some(of @ (PackedPart::EventGaps | PackedPart::Events)) => {
                let last_seen = unsigned(row.get(5).map_err(StoreError::from)?);
                let all = parts::stored_events(&get(4)?, last_seen)?;
                if of == PackedPart::Events { event_rows(&all) } else { event_gaps(&all) }
            }
            None => Vec::new(),
        };
        if found.is_empty() {
            continue;
        }
        let visitor = row.get(1).map_err(StoreError::from)?;
        let visitor = visitor_column.and_then(|column| column.cell(visitor));
        let visitor = visitor.ok_or(StoreError::Corrupt { what: "visitor" })?;
        for cells in found {
            give(std::iter::once(visitor.clone()).chain(cells).collect())?;
        }
    }
    Ok(())
}

fn stamp_cells(stamp: WriteStamp) -> [FileCell; 2] {
    [FileCell::Int(signed(stamp.at)), FileCell::Int(signed(stamp.order))]
}

fn segment_rows(map: &SegmentMap) -> Vec<Vec<FileCell>> {
    let row = |(id, stamp, state): (SegmentId, WriteStamp, &SegmentState)| {
        let (expiry, attributes) = match state {
            SegmentState::Removed => (FileCell::Null, BTreeMap::new()),
            SegmentState::Held { expiry, attributes } => {
                (FileCell::Int(expiry.0.into()), attributes.iter().copied().collect::<BTreeMap<u16, i32>>())
            }
        };
        let pairs: Vec<String> = attributes.iter().map(|(token, value)| format!("\"{token}\":{value}")).collect();
        let [at, order] = stamp_cells(stamp);
        vec![FileCell::Int(id.0.into()), expiry, FileCell::Text(format!("{{{}}}", pairs.join(","))), at, order]
    };
    map.writes().map(row).collect()
}

fn attribute_rows(map: &AttributeMap, names: &NameDictionary) -> Result<Vec<Vec<FileCell>>, StoreError> {
    let row = |(token, stamp, value): (NameToken, WriteStamp, Option<&Attribute>)| {
        let corrupt = StoreError::Corrupt { what: "attribute without a name" };
        let (name, kind) = names.get(token).ok_or(corrupt)?;
        if value.is_some_and(|value| value.kind() != kind) {
            return Err(StoreError::Corrupt { what: "attribute whose kind differs from its name's" });
        }
        let value = value.map_or(FileCell::Null, |value| FileCell::Text(value.to_json().to_string()));
        let [at, order] = stamp_cells(stamp);
        Ok(vec![FileCell::Int(token.0.into()), FileCell::Text(name.to_owned()), value, at, order])
    };
    map.writes().map(row).collect()
}

fn action_rows(conn: &Connection, row: VisitorRow) -> Result<Vec<Vec<FileCell>>, StoreError> {
    let mut found = Vec::new();
    for body in buckets::actions_within(conn, row, Minute(0), Minute(u32::MAX))? {
        let packed = packed_actions(&body)?;
        found.extend(packed.iter().map(|AdAction { insertion, action_type, view_type, entity, minute }| {
            let AdEntity { ad, ad_group, campaign, advertiser } = entity;
            let codes = [minute.0, action_type.0.into(), view_type.0.into(), ad, ad_group, campaign, advertiser];
            codes
                .map(|code| FileCell::Int(code.into()))
                .into_iter()
                .chain([FileCell::Text(to_hex(&insertion.0))])
                .collect()
        }));
    }
    Ok(found)
}

fn event_gaps(all: &VisitorEvents) -> Vec<Vec<FileCell>> {
    let (since, left_out) = all.gaps();
    let any = left_out || since > Minute(0);
    any.then(|| vec![FileCell::Int(since.0.into()), FileCell::Bool(left_out)]).into_iter().collect()
}

fn event_rows(all: &VisitorEvents) -> Vec<Vec<FileCell>> {
    let newest = |of: &NewestTimes| {
        let pairs: Vec<String> = of.iter().map(|(at, count)| format!("\"{at}\":{count}")).collect();
        [FileCell::Int(of.floor().into()), FileCell::Text(format!("{{{}}}", pairs.join(",")))]
    };
    let row = |(name, times): (&str, &EventTimes)| {
        let count = [FileCell::Text(name.to_owned()), FileCell::Int(signed(times.count()))];
        count.into_iter().chain(newest(&times.minutes)).chain(newest(&times.days)).collect()
    };
    all.iter().map(row).collect()
}

/// Rows of one visitor that are gathered into a packed value of the store.
#[derive(Debug)]
pub(super) enum VisitorParts {
    Segments(SegmentMap),
    Attributes(AttributeMap),
    Actions(ActionList),
    Events(VisitorEvents),
}

impl VisitorParts {
    pub(super) fn new(packed: PackedPart) -> Self {
        match packed {
            PackedPart::Segments => Self::Segments(SegmentMap::default()),
            PackedPart::Attributes => Self::Attributes(AttributeMap::default()),
            PackedPart::Actions => Self::Actions(ActionList::default()),
            PackedPart::EventGaps | PackedPart::Events => Self::Events(VisitorEvents::default()),
        }
    }

    /// Adds a row without its visitor. The values were checked against their columns.
    ///
    /// # Errors
    /// A description of the row's fault.
    pub(super) fn add(&mut self, names: &NameDictionary, values: &[Value]) -> Result<(), String> {
        match (self, values) {
            (Self::Segments(map), [id, expiry, Value::Text(attributes), at, order]) => {
                let wrong = |_| "`attributes` is not an object of whole numbers".to_owned();
                let attributes: BTreeMap<u16, i32> = serde_json::from_str(attributes).map_err(wrong)?;
                let held = |hour| SegmentState::held(HourStamp(hour), attributes);
                let state = if *expiry == Value::Null { SegmentState::Removed } else { held(small_number(expiry)) };
                map.write(SegmentId(small_number(id)), read_stamp(at, order), state);
            }
            (Self::Attributes(map), [token, Value::Text(name), value, at, order]) => {
                let token = NameToken(small_number(token));
                let known = names.get(token).filter(|(known, _)| known == name);
                let (_, kind) = known.ok_or("the pair of `token` and `name` is not in attribute_names")?;
                let value = match value {
                    Value::Text(text) => {
                        Some(read_attribute(kind, text).ok_or_else(|| format!("`value` is not {}", kind.name()))?)
                    }
                    _ => None,
                };
                map.write(token, read_stamp(at, order), value);
            }
            (
                Self::Actions(all),
                [minute, action_type, view_type, ad, ad_group, campaign, advertiser, Value::Blob(hash)],
            ) => {
                let [ad, ad_group, campaign, advertiser] = [ad, ad_group, campaign, advertiser].map(small_number);
                all.insert(AdAction {
                    insertion: InsertionHash(hash.as_slice().try_into().map_err(|_| "`insertion` is too short")?),
                    action_type: ActionType(small_number(action_type)),
                    view_type: ViewType(small_number(view_type)),
                    entity: AdEntity { ad, ad_group, campaign, advertiser },
                    minute: Minute(small_number(minute)),
                });
            }
            (Self::Events(all), [since, Value::Integer(left_out)]) => {
                *all = VisitorEvents::since(Minute(small_number(since))).leaving_out(*left_out != 0);
            }
            (Self::Events(all), [Value::Text(name), Value::Integer(count), floor, minutes, from_day, days]) => {
                let (minutes, days) = (read_newest("minutes", floor, minutes)?, read_newest("days", from_day, days)?);
                let mut times = EventTimes { earlier: 0, minutes, days };
                let earlier = unsigned(*count).checked_sub(times.count());
                times.earlier = earlier.ok_or("`count` is less than the sum of `minutes` and `days`")?;
                if !(1..=limits::NAME_BYTES).contains(&name.len()) {
                    return Err(format!("`name` must have 1 to {} bytes", limits::NAME_BYTES));
                }
                all.add_times(name, times);
            }
            _ => return Err("a column is missing".to_owned()),
        }
        Ok(())
    }

    /// Merges the rows into the stored row of a visitor. Returns `false`, and stores nothing, if the result cannot come
    /// from any facts.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(super) fn keep(self, conn: &Connection, row: VisitorRow) -> Result<bool, StoreError> {
        match self {
            Self::Segments(map) => parts::write_segments(conn, row, map)?,
            Self::Attributes(map) => parts::write_attributes(conn, row, map)?,
            Self::Events(all) => return parts::write_events(conn, row, all),
            Self::Actions(actions) => {
                let had: u32 =
                    conn.prepare_cached(visitors::VISITORS_ACTIONS_OF_ROW)?.query_row([row], |row| row.get(0))?;
                let has = buckets::add(conn, row, had, actions)?;
                conn.prepare_cached(visitors::VISITORS_SET_ACTIONS)?.execute((row, has))?;
            }
        }
        Ok(true)
    }
}

/// A number within the range of its column.
fn small_number<T: TryFrom<i64> + Default>(value: &Value) -> T {
    match value {
        Value::Integer(n) => T::try_from(*n).unwrap_or_default(),
        _ => T::default(),
    }
}

/// The counts of an event by minute or by day, from `floor` on.
fn read_newest(name: &str, floor: &Value, counts: &Value) -> Result<NewestTimes, String> {
    let Value::Text(text) = counts else { return Err(format!("`{name}` is missing")) };
    let wrong = |_| format!("`{name}` is not an object of whole numbers");
    let counts: BTreeMap<u32, u64> = serde_json::from_str(text).map_err(wrong)?;
    NewestTimes::from_parts(small_number(floor), counts)
        .ok_or_else(|| format!("`{name}` has an entry before its first one, or a count of 0"))
}

fn read_stamp(at: &Value, order: &Value) -> WriteStamp {
    WriteStamp { at: unsigned(small_number(at)), order: unsigned(small_number(order)) }
}

/// The attribute value that a JSON text stands for, exactly.
fn read_attribute(kind: ValueKind, text: &str) -> Option<Attribute> {
    if kind == ValueKind::Float {
        return text.parse().ok().and_then(FiniteNumber::new).map(Attribute::Float);
    }
    Attribute::from_json(&serde_json::from_str(text).ok()?).ok()?.fit(kind).ok()
}
