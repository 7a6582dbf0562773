//! Turns lines into facts. A bad line is reported with its number, and the other lines are imported.

pub(crate) use crate::maintenance::import::refusal::Refusal;
pub(crate) use crate::maintenance::import::refusal::VisitorText;
pub(crate) use crate::maintenance::import::refusal::malformed_line;
use std::collections::BTreeMap;

use causeway_shared::base::ids::{FactId, Millis, SessionId, VisitorId};
use causeway_shared::base::limits;
use causeway_shared::base::time::HourStamp;
use causeway_shared::facts::fact::{Fact, FactKind};
use causeway_shared::facts::segments::{SegmentId, SegmentState};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::ImportKind;
use super::cells::split_cells;
use super::event_line::{EventLine, read_optional_whole, whole_of};
use super::file::{ImportFormat, LineChunk};
use super::parquet_columns::is_read;
use crate::identity::connections::{self, VisitorLink};
use crate::ingest::intake::CheckedFact;
use crate::store::tenants::TenantContext;
use crate::views::segments::{self, HeldSegment, SegmentWrite};

/// A refused line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Number of the line, from 1.
    pub line: u64,
    /// Machine-readable code of the reason.
    pub code: &'static str,
    /// The reason in words.
    pub message: String,
}

/// The layout of the lines.
#[derive(Debug)]
pub enum LineLayout {
    /// One JSON object per line, with known fields only.
    Json(ImportKind),
    /// One Parquet row per line, as a JSON object; unknown columns are ignored.
    Parquet(ImportKind),
    /// CSV with these columns, all of them known.
    Csv(ImportKind, Vec<CsvColumn>),
}

/// A column of a CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CsvColumn {
    /// The visitor.
    Visitor,
    /// Another visitor of the same person.
    Other,
    /// The kind of an alternate id.
    Kind,
    /// The raw id.
    Value,
    /// Weight of a link: over 0, at most 1.
    Weight,
    /// Source of a link.
    Source,
    /// The number of one segment.
    Segment,
    /// Expiry of the segment; an empty cell removes the visitor from it.
    ExpiresMs,
    /// A list of segments separated by blanks. `id:hour` has the expiry in hours since 2019; `-id` removes the visitor.
    Segments,
    /// Type of the event.
    Type,
    /// The event's own id.
    Id,
    /// Time of the event.
    AtMs,
    /// The session of a page view.
    Session,
    /// Name of a tracked event.
    Name,
    /// Value of a tracked event.
    ValueMicros,
    /// The order of a purchase.
    OrderId,
    /// Action type of an action.
    Action,
    /// Insertion of an action.
    Insertion,
    /// View type of the action's placement.
    ViewType,
    /// The ad.
    Ad,
    /// The ad's group.
    AdGroup,
    /// The ad's campaign.
    Campaign,
    /// The ad's advertiser.
    Advertiser,
}

impl LineLayout {
    fn kind(&self) -> ImportKind {
        let (Self::Json(kind) | Self::Parquet(kind) | Self::Csv(kind, _)) = self;
        *kind
    }

    /// The layout of a file.
    ///
    /// # Errors
    /// A description of the header line's fault.
    pub fn of(kind: ImportKind, form: ImportFormat, header: &[u8]) -> Result<Self, String> {
        match form {
            ImportFormat::Ndjson => return Ok(Self::Json(kind)),
            ImportFormat::Parquet => return Ok(Self::Parquet(kind)),
            ImportFormat::Csv => {}
        }
        let text = std::str::from_utf8(header).map_err(|_| "it is not UTF-8".to_owned())?;
        let column = |name: &str| {
            let known = serde_json::from_value(Value::from(name.trim().to_ascii_lowercase()));
            known.map_err(|_| format!("unknown column `{}`", name.trim()))
        };
        let names = split_cells(text.trim())?;
        let columns: Vec<CsvColumn> = names.iter().map(|name| column(name)).collect::<Result<_, _>>()?;
        let has = |wanted: &CsvColumn| columns.contains(wanted);
        let twice =
            (1..columns.len()).find(|at| columns.iter().take(*at).any(|column| columns.get(*at) == Some(column)));
        if let Some(name) = twice.and_then(|at| names.get(at)) {
            return Err(format!("the column `{name}` is given twice"));
        }
        let segments = has(&CsvColumn::Segments) || [CsvColumn::Segment, CsvColumn::ExpiresMs].iter().all(has);
        match kind {
            _ if !has(&CsvColumn::Visitor) => Err("the column `visitor` is missing".to_owned()),
            ImportKind::Segments if !segments => {
                Err("`segments`, or `segment` and `expires_ms`, are missing".to_owned())
            }
            ImportKind::Events if !has(&CsvColumn::Type) => Err("the column `type` is missing".to_owned()),
            ImportKind::Links if !has(&CsvColumn::Weight) || !has(&CsvColumn::Source) => {
                Err("`weight` or `source` is missing".to_owned())
            }
            ImportKind::Links if !has(&CsvColumn::Other) && ![CsvColumn::Kind, CsvColumn::Value].iter().all(has) => {
                Err("`other`, or `kind` and `value`, are missing".to_owned())
            }
            _ => Ok(Self::Csv(kind, columns)),
        }
    }
}

/// A fact, and the number of its line.
pub type Placed = (u64, CheckedFact);

/// The parser for the lines of one file.
#[derive(Debug)]
pub struct RowReader<'a> {
    /// The visitors' tenant.
    pub tenant: &'a TenantContext,
    /// The layout of the lines.
    pub columns: LineLayout,
    /// Identifies the file and its version.
    pub file: String,
    /// The time of this run.
    pub now: Millis,
}

/// A line of segments as JSON: `set` and `remove`, or flat as in a CSV.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SegmentsLine {
    visitor: VisitorText,
    #[serde(default)]
    set: Option<Vec<HeldSegment>>,
    #[serde(default)]
    remove: Option<Vec<u32>>,
    #[serde(default, deserialize_with = "read_optional_whole")]
    segment: Option<u32>,
    /// `null` removes the visitor from the segment.
    #[serde(default, deserialize_with = "present")]
    expires_ms: Option<Option<Millis>>,
    #[serde(default)]
    segments: Option<String>,
}

/// Reads a field that is present, including `null`.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Option<Millis>>, D::Error> {
    read_optional_whole(from).map(Some)
}

impl SegmentsLine {
    fn writes(self) -> Result<(VisitorId, Vec<(SegmentId, SegmentState)>), Refusal> {
        let (mut set, mut remove) = (self.set.unwrap_or_default(), self.remove.unwrap_or_default());
        if let Some(segment) = self.segment {
            let expiry = self.expires_ms.ok_or_else(|| malformed_line("a `segment` needs an `expires_ms`"))?;
            match expiry {
                Some(expires_ms) => set.push(HeldSegment { segment, expires_ms, attributes: BTreeMap::new() }),
                None => remove.push(segment),
            }
        }
        let listed = self.segments.iter().flat_map(|list| list.split_ascii_whitespace()).map(one_segment);
        let listed = listed.collect::<Result<Vec<_>, _>>()?;
        let mut writes =
            segments::segment_writes(&SegmentWrite { set, remove }).map_err(|e| (e.code(), e.to_string()))?;
        writes.extend(listed);
        Ok((self.visitor.id()?, writes))
    }
}

/// A link of an NDJSON, Parquet or CSV file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkLine {
    visitor: VisitorText,
    other: Option<String>,
    kind: Option<String>,
    value: Option<String>,
    weight: Option<f64>,
    source: Option<String>,
}

impl LinkLine {
    fn into_tie(self) -> Result<(VisitorId, VisitorLink), Refusal> {
        let Self { visitor, other, kind, value, weight, source } = self;
        Ok((visitor.id()?, VisitorLink { other, kind, value, weight, source }))
    }
}

/// Reads a line of JSON.
fn read_line<T: DeserializeOwned>(columns: &LineLayout, text: &[u8]) -> Result<T, Refusal> {
    let line = match columns {
        LineLayout::Parquet(kind) => {
            serde_json::from_slice(text).and_then(|mut row: serde_json::Map<String, Value>| {
                row.retain(|name, _| is_read(*kind, name));
                serde_json::from_value(Value::Object(row))
            })
        }
        LineLayout::Json(_) | LineLayout::Csv(..) => serde_json::from_slice(text),
    };
    line.map_err(|e| malformed_line(e.to_string()))
}

impl RowReader<'_> {
    /// The facts of a chunk's lines, and the refused lines. Empty lines are skipped.
    #[must_use]
    pub fn read(&self, chunk: &LineChunk) -> (Vec<Placed>, Vec<BadLine>) {
        let (mut facts, mut bad) = (Vec::new(), Vec::new());
        let lines = chunk.text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        for (line, text) in (chunk.first_line + 1..).zip(lines) {
            if text.is_empty() {
                continue;
            }
            match self.facts(line, text) {
                Ok(of) => facts.extend(of.map(|fact| (line, CheckedFact { tenant: self.tenant.no, fact }))),
                Err((code, message)) => bad.push(BadLine { line, code, message }),
            }
        }
        (facts, bad)
    }

    /// The facts of a line. A link of two visitors gives one fact for each.
    fn facts(&self, line: u64, text: &[u8]) -> Result<impl Iterator<Item = Fact>, Refusal> {
        if self.columns.kind() != ImportKind::Links {
            return Ok([Some(self.fact(line, text)?), None].into_iter().flatten());
        }
        let link: LinkLine = match &self.columns {
            LineLayout::Json(_) | LineLayout::Parquet(_) => read_line(&self.columns, text)?,
            LineLayout::Csv(_, columns) => {
                let text = std::str::from_utf8(text).map_err(|_| malformed_line("it is not UTF-8"))?;
                link_cells(named_cells(columns, text)?)?
            }
        };
        let refused = |e: connections::LinkError| (e.code(), e.to_string());
        let (visitor, tie) = link.into_tie()?;
        let of = connections::parse_link(self.tenant, visitor, &tie).map_err(refused)?;
        let fact = |(visitor, what)| Fact {
            position: 0,
            id: self.line_id(visitor, line),
            visitor,
            received: self.now,
            at: self.now,
            what,
        };
        Ok(of.map(|of| of.map(fact)).into_iter().flatten())
    }

    fn fact(&self, line: u64, text: &[u8]) -> Result<Fact, Refusal> {
        let fact = match &self.columns {
            LineLayout::Json(ImportKind::Segments) | LineLayout::Parquet(ImportKind::Segments) => {
                let (visitor, writes) = read_line::<SegmentsLine>(&self.columns, text)?.writes()?;
                self.segments(line, visitor, writes)
            }
            LineLayout::Json(_) | LineLayout::Parquet(_) => self.event(text, read_line(&self.columns, text)?)?,
            LineLayout::Csv(kind, columns) => {
                let text = std::str::from_utf8(text).map_err(|_| malformed_line("it is not UTF-8"))?;
                if *kind == ImportKind::Segments {
                    let (visitor, writes) = segments_cells(named_cells(columns, text)?)?;
                    self.segments(line, visitor, writes)
                } else {
                    self.event(text.as_bytes(), event_cells(named_cells(columns, text)?)?)?
                }
            }
        };
        // The line number orders two writes of one time to the same name: the later line wins.
        let fact = Fact { position: u32::try_from(line).unwrap_or(u32::MAX), ..fact };
        fact.check(self.now).map_err(|e| (e.code(), e.to_string()))?;
        Ok(fact)
    }

    fn segments(&self, line: u64, visitor: VisitorId, writes: Vec<(SegmentId, SegmentState)>) -> Fact {
        let (id, at) = (self.line_id(visitor, line), self.now);
        Fact { position: 0, id, visitor, received: at, at, what: FactKind::Segments { writes } }
    }

    /// The id of a write: the same line of the same file is the same write.
    fn line_id(&self, visitor: VisitorId, line: u64) -> FactId {
        FactId::of_message(visitor, &format!("import {} {line}", self.file))
    }

    fn event(&self, text: &[u8], event: EventLine) -> Result<Fact, Refusal> {
        let visitor = event.visitor.id()?;
        let (at, received) = (event.at_ms.unwrap_or(self.now), self.now);
        let order = event.order()?;
        let id = match event.id.as_deref() {
            _ if let Some(order) = order => FactId::of_order(visitor, order),
            // The same line in any file is the same event.
            None if event.at_ms.is_some() => FactId::of_message(visitor, &format!("import {}", text_digest(text))),
            None => {
                return Err(malformed_line("an event needs an `id` or an `at_ms`, so that a repetition is recognised"));
            }
            Some(id) if (1..=limits::MESSAGE_ID_BYTES).contains(&id.len()) => {
                FactId::of_event(visitor, &event.kind, event.name.as_deref().unwrap_or_default(), id)
            }
            Some(_) => {
                return Err(("too_long", format!("an event's id must have 1 to {} bytes", limits::MESSAGE_ID_BYTES)));
            }
        };
        if event.kind == "action" {
            let (action_type, view_type) = event.words(&self.tenant.config)?;
            let action = event.to_action(visitor, received, at, action_type, view_type)?;
            // Without a time in the file, only the event's id recognises a repetition on another day.
            return Ok(if event.at_ms.is_some() { action } else { Fact { id, ..action } });
        }
        let what = match event.kind.as_str() {
            "page" => {
                FactKind::Page { session: event.session.map_or_else(|| imported_session(visitor, at), SessionId) }
            }
            "track" => event.into_track(order)?,
            _ => return Err(("unknown_type", "unknown type: expected page, track or action".to_owned())),
        };
        Ok(Fact { position: 0, id, visitor, received, at, what })
    }
}

/// The first 16 bytes of the SHA-256 of a text, in hexadecimal digits.
fn text_digest(text: &[u8]) -> String {
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Page views within one half hour of the clock are one session if the file names none.
fn imported_session(visitor: VisitorId, at: Millis) -> SessionId {
    let [a, b, c, d, ..] = *visitor.as_bytes();
    SessionId::mint(at - at % limits::SESSION_IDLE_MS, [a, b, c, d])
}

type Cells<'t> = Vec<(CsvColumn, std::borrow::Cow<'t, str>)>;

/// A line's cells with their columns, without the empty ones.
fn named_cells<'t>(columns: &[CsvColumn], text: &'t str) -> Result<Cells<'t>, Refusal> {
    let cells = split_cells(text).map_err(malformed_line)?;
    if cells.len() != columns.len() {
        return Err(malformed_line(format!("the line has {} cells, the header has {}", cells.len(), columns.len())));
    }
    Ok(columns.iter().copied().zip(cells).filter(|(_, cell)| !cell.is_empty()).collect())
}

fn parse_number<T: std::str::FromStr>(cell: &str, what: &str) -> Result<T, Refusal> {
    cell.trim().parse().map_err(|_| no_number(cell, what))
}

/// Parses a whole number of a column: 5, 5.0 or 5e0, as tools with only one number type write it.
fn parse_whole<T: std::str::FromStr + TryFrom<i128>>(cell: &str, what: &str) -> Result<T, Refusal> {
    let float = || T::try_from(whole_of(cell.trim().parse().ok()?)?).ok();
    cell.trim().parse().ok().or_else(float).ok_or_else(|| no_number(cell, what))
}

fn no_number(cell: &str, what: &str) -> Refusal {
    malformed_line(format!("invalid {what} `{cell:.40}`: expected a whole number"))
}

fn segments_cells(cells: Cells<'_>) -> Result<(VisitorId, Vec<(SegmentId, SegmentState)>), Refusal> {
    let (mut visitor, mut segment, mut expiry, mut writes) = (VisitorText::default(), None, None, Vec::new());
    for (column, cell) in cells {
        match column {
            CsvColumn::Visitor => visitor.0 = cell.into_owned(),
            CsvColumn::Segment => segment = Some(SegmentId(parse_whole(&cell, "segment")?)),
            CsvColumn::ExpiresMs => expiry = Some(parse_whole::<Millis>(&cell, "expires_ms")?),
            CsvColumn::Segments => writes = cell.split_ascii_whitespace().map(one_segment).collect::<Result<_, _>>()?,
            _ => {}
        }
    }
    if let Some(id) = segment {
        // The expiry is not capped here: one beyond 2100 is refused with its line.
        let expiry_of = |ms: Millis| HourStamp::at(ms.saturating_add(3_599_999));
        let held = |ms| SegmentState::Held { expiry: expiry_of(ms), attributes: Vec::new() };
        writes.push((id, expiry.map_or(SegmentState::Removed, held)));
    }
    Ok((visitor.id()?, writes))
}

fn link_cells(cells: Cells<'_>) -> Result<LinkLine, Refusal> {
    let mut link = LinkLine::default();
    for (column, cell) in cells {
        match column {
            CsvColumn::Visitor => link.visitor.0 = cell.into_owned(),
            CsvColumn::Other => link.other = Some(cell.into_owned()),
            CsvColumn::Kind => link.kind = Some(cell.into_owned()),
            CsvColumn::Value => link.value = Some(cell.into_owned()),
            CsvColumn::Weight => {
                let wrong = |_| malformed_line(format!("invalid weight `{cell:.40}`: expected a number"));
                link.weight = Some(cell.trim().parse().map_err(wrong)?);
            }
            CsvColumn::Source => link.source = Some(cell.into_owned()),
            _ => {}
        }
    }
    Ok(link)
}

fn one_segment(text: &str) -> Result<(SegmentId, SegmentState), Refusal> {
    if let Some(id) = text.strip_prefix('-') {
        return Ok((SegmentId(parse_number(id, "segment")?), SegmentState::Removed));
    }
    let (id, hour) = text
        .split_once(':')
        .ok_or_else(|| malformed_line(format!("invalid segment `{text:.40}`: expected id:hour or -id")))?;
    // The expiry is not capped here: one beyond 2100 is refused with its line.
    let state = SegmentState::Held { expiry: HourStamp(parse_number(hour, "hour")?), attributes: Vec::new() };
    Ok((SegmentId(parse_number(id, "segment")?), state))
}

fn event_cells(cells: Cells<'_>) -> Result<EventLine, Refusal> {
    let mut event = EventLine::default();
    for (column, cell) in cells {
        match column {
            CsvColumn::Visitor => event.visitor.0 = cell.into_owned(),
            CsvColumn::Type => event.kind = cell.into_owned(),
            CsvColumn::Id => event.id = Some(cell.into_owned()),
            CsvColumn::AtMs => event.at_ms = Some(parse_whole(&cell, "at_ms")?),
            CsvColumn::Session => event.session = Some(parse_whole(&cell, "session")?),
            CsvColumn::Name => event.name = Some(cell.into_owned()),
            CsvColumn::OrderId => event.order_id = Some(cell.into_owned()),
            CsvColumn::ValueMicros => event.value_micros = Some(parse_whole(&cell, "value_micros")?),
            CsvColumn::Action => event.action = Some(cell.into_owned()),
            CsvColumn::Insertion => event.insertion = Some(cell.into_owned()),
            CsvColumn::ViewType => event.view_type = Some(cell.into_owned()),
            CsvColumn::Ad => event.ad = parse_whole(&cell, "ad")?,
            CsvColumn::AdGroup => event.ad_group = parse_whole(&cell, "ad_group")?,
            CsvColumn::Campaign => event.campaign = parse_whole(&cell, "campaign")?,
            CsvColumn::Advertiser => event.advertiser = parse_whole(&cell, "advertiser")?,
            _ => {}
        }
    }
    Ok(event)
}
