//! Reservations: insertions placed in front of the visitor that may not be in a snapshot yet.
//!
//! Packed form for the cookie: the newest minute, then each distinct entity, then one row per reservation. A row has
//! the insertion's hash (6 bytes), the view type, the index of its entity, and the minutes before the newest.

use std::collections::BTreeSet;

use crate::base::ids::Millis;
use crate::base::limits;
use crate::base::packed::{self, PackedReader};
use crate::base::time::Minute;
use crate::facts::actions::{ActionType, AdAction, AdEntity, InsertionHash, ViewType};
use crate::keys::ad_token::AdToken;

/// Longest head, in bytes: the newest minute (at most five) and the number of entities.
const HEAD: usize = 6;
const HASH: usize = 6;
/// Longest row, in bytes, with up to 128 entities.
const ROW: usize = HASH + 3;

/// An insertion that `decide` placed. It counts as its impression while a snapshot may not contain the impression yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlacedInsertion {
    /// The insertion's hash.
    pub insertion: InsertionHash,
    /// The ad with its ad group, campaign and advertiser.
    pub entity: AdEntity,
    /// The view type of the placement.
    pub view_type: ViewType,
    /// The minute of the placement.
    pub minute: Minute,
}

impl From<&AdToken> for PlacedInsertion {
    fn from(token: &AdToken) -> Self {
        let AdToken { insertion, entity, view_type, placed, .. } = *token;
        Self { insertion: InsertionHash::of(insertion), entity, view_type, minute: Minute::at(placed) }
    }
}

impl PlacedInsertion {
    /// The impression that the reservation stands for.
    #[must_use]
    pub fn impression(&self) -> AdAction {
        let Self { insertion, entity, view_type, minute } = *self;
        AdAction { insertion, action_type: ActionType::IMPRESSION, view_type, entity, minute }
    }

    /// Whether the serve window is open, in whole minutes.
    pub(super) fn is_live(&self, now: Millis) -> bool {
        u64::from(Minute::at(now).0.saturating_sub(self.minute.0)) * 60_000 <= limits::SERVE_WINDOW_MS
    }
}

/// The number of newest reservations that fit into [`limits::RESERVATION_BYTES`]. `reserved` is in the order of
/// placement.
pub(super) fn fitting(reserved: &[PlacedInsertion]) -> usize {
    let mut entities = BTreeSet::new();
    let mut bytes = HEAD;
    let fits = |reservation: &&PlacedInsertion| {
        let new = entities.insert(reservation.entity);
        bytes += ROW + if new { codes(reservation.entity).len() } else { 0 };
        bytes <= limits::RESERVATION_BYTES
    };
    reserved.iter().rev().take_while(fits).count()
}

/// The packed form; empty for no reservations. An age over 255 minutes, relative to the newest, is stored as 255.
pub(crate) fn pack(reserved: &[PlacedInsertion]) -> Vec<u8> {
    let Some(newest) = reserved.iter().map(|r| r.minute).max() else { return Vec::new() };
    let mut entities: Vec<AdEntity> = Vec::new();
    let mut rows = Vec::with_capacity(reserved.len() * ROW);
    for PlacedInsertion { insertion, entity, view_type, minute } in reserved {
        let index = entities.iter().position(|e| e == entity).unwrap_or_else(|| {
            entities.push(*entity);
            entities.len() - 1
        });
        rows.extend(insertion.0);
        rows.push(view_type.0);
        packed::put(&mut rows, index as u64);
        rows.push(u8::try_from(newest.0 - minute.0).unwrap_or(u8::MAX));
    }
    let mut to = Vec::with_capacity(limits::RESERVATION_BYTES);
    packed::put(&mut to, newest.0.into());
    packed::put(&mut to, entities.len() as u64);
    entities.into_iter().for_each(|entity| to.extend(codes(entity)));
    to.extend(rows);
    to
}

/// Reads the packed form; `None` if it is malformed.
pub(crate) fn read(bytes: &[u8]) -> Option<Vec<PlacedInsertion>> {
    let mut from = PackedReader(bytes);
    if from.is_empty() {
        return Some(Vec::new());
    }
    let newest = code(&mut from)?;
    let entities = (0..from.count(bytes.len())?).map(|_| {
        let [ad, ad_group, campaign, advertiser] =
            [code(&mut from)?, code(&mut from)?, code(&mut from)?, code(&mut from)?];
        Some(AdEntity { ad, ad_group, campaign, advertiser })
    });
    let entities: Vec<AdEntity> = entities.collect::<Option<_>>()?;
    let mut reserved = Vec::new();
    while !from.is_empty() {
        let insertion = InsertionHash(from.take(HASH)?.try_into().ok()?);
        let view_type = ViewType(byte(&mut from)?);
        let entity = *entities.get(usize::try_from(from.number()?).ok()?)?;
        let minute = Minute(newest.checked_sub(byte(&mut from)?.into())?);
        reserved.push(PlacedInsertion { insertion, entity, view_type, minute });
    }
    Some(reserved)
}

fn codes(AdEntity { ad, ad_group, campaign, advertiser }: AdEntity) -> Vec<u8> {
    let mut to = Vec::with_capacity(20);
    [ad, ad_group, campaign, advertiser].into_iter().for_each(|code| packed::put(&mut to, code.into()));
    to
}

fn code(from: &mut PackedReader<'_>) -> Option<u32> {
    u32::try_from(from.number()?).ok()
}

fn byte(from: &mut PackedReader<'_>) -> Option<u8> {
    from.take(1)?.first().copied()
}
