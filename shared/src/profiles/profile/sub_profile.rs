//! One visitor's packed profile at one version, as part of a snapshot. A reader unpacks only the parts that it reads.

use std::cmp::Reverse;

use super::{MissingParts, NewestFacts, ProfileTotals, SESSIONS};
use crate::base::ids::{Micros, Millis, SessionId, SnapshotVersion};
use crate::base::limits;
use crate::base::packed::{self, PackedReader, SharedBytes};
use crate::base::planted::{self, PlantedBug};
use crate::base::time::Minute;
use crate::facts::actions::PackedActions;
use crate::facts::attributes::PackedAttributes;
use crate::facts::events::{self, EventCount};
use crate::facts::exposures::Exposures;
use crate::facts::offer_codes::HeldOfferCodes;
use crate::facts::orders::VisitorOrders;
use crate::facts::segments::PackedSegments;

const SEEN: u64 = 1;
const NAMED: u64 = 2;
const ACTED: u64 = 4;
const SEGMENTED: u64 = 8;
const ATTRIBUTED: u64 = 16;
const EXPOSED: u64 = 32;
const OFFER_CODES: u64 = 64;
const RECENT: u64 = 128;
const ORDERED: u64 = 256;
/// The bits of [`MissingParts`] follow the flags.
const MISSING_SHIFT: u32 = 9;

/// One visitor's profile at one version. Two with the same version differ only in parts for which a snapshot had no
/// room.
#[derive(Clone, PartialEq, Eq)]
pub struct SubProfile {
    version: SnapshotVersion,
    packed: SharedBytes,
}

/// The unpacked content of a sub-profile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubContent {
    /// The sums.
    pub totals: ProfileTotals,
    /// Times of the first and last fact.
    pub seen: Option<(Millis, Millis)>,
    /// Names of the newest facts; only in the visitor's own snapshot, whose ledger needs them.
    pub names: Option<NewestNames>,
    /// The actions, packed; empty for none.
    pub actions: Vec<u8>,
    /// The segments, packed; empty for none.
    pub segments: Vec<u8>,
    /// The attributes, packed; empty for none.
    pub attributes: Vec<u8>,
    /// The exposures, packed; empty for none.
    pub exposures: Vec<u8>,
    /// The offer codes, packed; empty for none.
    pub offer_codes: Vec<u8>,
    /// Times of page views and purchases, packed; empty if unknown.
    pub recent: Vec<u8>,
    /// The orders, packed; empty for none.
    pub orders: Vec<u8>,
    /// Parts for which the snapshot had no room.
    pub missing: MissingParts,
}

/// Names of the newest facts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewestNames {
    /// The newest sessions, oldest first.
    pub sessions: Vec<SessionId>,
    /// The newest facts.
    pub newest: NewestFacts,
}

impl SubProfile {
    /// Packs a content.
    #[must_use]
    pub fn pack(version: SnapshotVersion, content: &SubContent) -> Self {
        let SubContent {
            totals,
            seen,
            names,
            actions,
            segments,
            attributes,
            exposures,
            offer_codes,
            recent,
            orders,
            missing,
        } = content;
        let mut to = Vec::new();
        let flag = |set, flag| if set { flag } else { 0 };
        let parts = flag(!actions.is_empty(), ACTED)
            | flag(!segments.is_empty(), SEGMENTED)
            | flag(!attributes.is_empty(), ATTRIBUTED)
            | flag(!exposures.is_empty(), EXPOSED)
            | flag(!offer_codes.is_empty(), OFFER_CODES)
            | flag(!recent.is_empty(), RECENT)
            | flag(!orders.is_empty(), ORDERED);
        let missing = u64::from(missing.bits()) << MISSING_SHIFT;
        packed::put(&mut to, flag(seen.is_some(), SEEN) | flag(names.is_some(), NAMED) | parts | missing);
        // Actions and segments come first, because a decision needs them and can skip the rest.
        for part in [actions, segments].into_iter().filter(|part| !part.is_empty()) {
            packed::put_row(&mut to, part);
        }
        [totals.pages, totals.sessions, totals.purchases].into_iter().for_each(|n| packed::put(&mut to, n));
        packed::put_signed(&mut to, totals.revenue.get());
        if let Some((first, last)) = seen {
            packed::put(&mut to, *first);
            packed::put(&mut to, last.saturating_sub(*first));
        }
        if let Some(names) = names {
            names.put(&mut to);
        }
        // New parts are added at the end, because a reader of the previous release ignores trailing bytes.
        for part in [attributes, exposures, offer_codes, recent, orders].into_iter().filter(|part| !part.is_empty()) {
            packed::put_row(&mut to, part);
        }
        Self { version, packed: to.into() }
    }

    /// Wraps the bytes of a snapshot without a check. Malformed parts later read as zero or absent.
    #[must_use]
    pub fn from_packed(version: SnapshotVersion, packed: SharedBytes) -> Self {
        Self { version, packed }
    }

    /// The bytes.
    #[must_use]
    pub fn packed(&self) -> &[u8] {
        &self.packed
    }

    /// The version that the origin issued.
    #[must_use]
    pub fn version(&self) -> SnapshotVersion {
        self.version
    }

    /// The parts for which the snapshot had no room.
    #[must_use]
    pub fn missing(&self) -> MissingParts {
        missing_in(PackedReader(&self.packed).number().unwrap_or_default())
    }

    /// The sums.
    #[must_use]
    pub fn totals(&self) -> ProfileTotals {
        self.parts().and_then(|mut parts| read_totals(&mut parts.rest)).unwrap_or_default()
    }

    /// Times of the first and last fact.
    #[must_use]
    pub fn seen(&self) -> Option<(Millis, Millis)> {
        let SubParts { flags, mut rest, .. } = self.parts()?;
        read_totals(&mut rest)?;
        read_seen(flags, &mut rest)?
    }

    /// The actions; `None` if there are none or they are malformed.
    #[must_use]
    pub fn actions(&self) -> Option<PackedActions<'_>> {
        PackedActions::read(self.parts()?.actions).filter(|actions| !actions.is_empty())
    }

    /// The segments; `None` if there are none or they are malformed.
    #[must_use]
    pub fn segments(&self) -> Option<PackedSegments<'_>> {
        PackedSegments::read(self.parts()?.segments)
    }

    /// The attributes; `None` if there are none or they are malformed.
    #[must_use]
    pub fn attributes(&self) -> Option<PackedAttributes<'_>> {
        PackedAttributes::read(self.part_after_sums(ATTRIBUTED)?)
    }

    /// The exposures; empty if malformed.
    #[must_use]
    pub fn exposures(&self) -> Exposures {
        self.part_after_sums(EXPOSED).and_then(Exposures::read).unwrap_or_default()
    }

    /// The offer codes; empty if malformed.
    #[must_use]
    pub fn offer_codes(&self) -> HeldOfferCodes {
        self.part_after_sums(OFFER_CODES).and_then(HeldOfferCodes::read).unwrap_or_default()
    }

    /// The number of events of a name from minute `from` to before `to`; `None` for an event that snapshots do not
    /// time.
    #[must_use]
    pub fn within(&self, name: &str, from: Minute, to: Minute) -> Option<EventCount> {
        events::recent_within(self.part_after_sums(RECENT).unwrap_or_default(), name, from, to)
    }

    /// The orders; empty if malformed.
    #[must_use]
    pub fn orders(&self) -> VisitorOrders {
        self.part_after_sums(ORDERED).and_then(VisitorOrders::read).unwrap_or_default()
    }

    /// Whether it has the names of its newest facts.
    #[must_use]
    pub fn is_named(&self) -> bool {
        PackedReader(&self.packed).number().unwrap_or_default() & NAMED != 0
    }

    /// The names of the newest facts, if it has them.
    #[must_use]
    pub fn names(&self) -> Option<NewestNames> {
        self.content()?.names
    }

    /// Whether the sums include the fact; false if it has no names of facts.
    #[must_use]
    pub fn holds(&self, received: Millis, short: u64) -> bool {
        self.names().is_some_and(|names| names.newest.holds(received, short))
    }

    /// The whole content; `None` if the bytes are malformed.
    #[must_use]
    pub fn content(&self) -> Option<SubContent> {
        let SubParts { flags, actions, segments, mut rest } = self.parts()?;
        let (totals, seen, names) = read_sums(flags, &mut rest)?;
        let attributes = read_part(flags, ATTRIBUTED, &mut rest)?;
        let (exposures, offer_codes) =
            (read_part(flags, EXPOSED, &mut rest)?, read_part(flags, OFFER_CODES, &mut rest)?);
        let (recent, orders) = (read_part(flags, RECENT, &mut rest)?, read_part(flags, ORDERED, &mut rest)?);
        let [actions, segments, attributes, exposures, offer_codes, recent, orders] =
            [actions, segments, attributes, exposures, offer_codes, recent, orders].map(<[u8]>::to_vec);
        let missing = missing_in(flags);
        Some(SubContent {
            totals,
            seen,
            names,
            actions,
            segments,
            attributes,
            exposures,
            offer_codes,
            recent,
            orders,
            missing,
        })
    }

    /// One of the parts after the sums; `None` if it is absent or malformed.
    fn part_after_sums(&self, part: u64) -> Option<&[u8]> {
        let SubParts { flags, mut rest, .. } = self.parts()?;
        if flags & part == 0 {
            return None;
        }
        read_sums(flags, &mut rest)?;
        for before in [ATTRIBUTED, EXPOSED, OFFER_CODES, RECENT].into_iter().filter(|before| *before < part) {
            read_part(flags, before, &mut rest)?;
        }
        rest.row()
    }

    fn parts(&self) -> Option<SubParts<'_>> {
        let mut rest = PackedReader(&self.packed);
        let flags = rest.number()?;
        let actions = if flags & ACTED == 0 { &[] } else { rest.row()? };
        let segments = if flags & SEGMENTED == 0 { &[] } else { rest.row()? };
        Some(SubParts { flags, actions, segments, rest })
    }

    /// The newer of the two; at the same version, the one with names, then the one with fewer missing parts, then the
    /// longer one.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        if planted::is_active(PlantedBug::SumInsteadOfUnion) {
            let (Some(mut all), Some(more)) = (self.content(), other.content()) else { return self };
            all.totals = all.totals.plus(more.totals);
            return Self::pack(self.version.max(other.version), &all);
        }
        if other.join_order() > self.join_order() { other } else { self }
    }

    /// The order of the join. It is total, so that the join does not depend on the order of arrival.
    fn join_order(&self) -> (SnapshotVersion, bool, Reverse<u32>, usize, &[u8]) {
        (self.version, self.is_named(), Reverse(self.missing().count()), self.packed.len(), &self.packed)
    }
}

struct SubParts<'a> {
    flags: u64,
    actions: &'a [u8],
    segments: &'a [u8],
    rest: PackedReader<'a>,
}

impl std::fmt::Debug for SubProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.version, self.content())
    }
}

fn missing_in(flags: u64) -> MissingParts {
    let [bits, ..] = (flags >> MISSING_SHIFT).to_le_bytes();
    MissingParts::from_bits(bits)
}

type Sums = (ProfileTotals, Option<(Millis, Millis)>, Option<NewestNames>);

fn read_sums(flags: u64, from: &mut PackedReader<'_>) -> Option<Sums> {
    let totals = read_totals(from)?;
    let seen = read_seen(flags, from)?;
    let names = if flags & NAMED == 0 { None } else { Some(NewestNames::read(from)?) };
    Some((totals, seen, names))
}

/// The optional times; the outer `None` means malformed bytes.
fn read_seen(flags: u64, from: &mut PackedReader<'_>) -> Option<Option<(Millis, Millis)>> {
    if flags & SEEN == 0 {
        return Some(None);
    }
    let (first, span) = (from.number()?, from.number()?);
    Some(Some((first, first.checked_add(span)?)))
}

/// The next part after the sums; empty if its flag is not set.
fn read_part<'a>(flags: u64, flag: u64, from: &mut PackedReader<'a>) -> Option<&'a [u8]> {
    if flags & flag == 0 { Some(&[]) } else { from.row() }
}

fn read_totals(packed: &mut PackedReader<'_>) -> Option<ProfileTotals> {
    let (pages, sessions, purchases) = (packed.number()?, packed.number()?, packed.number()?);
    Some(ProfileTotals { pages, sessions, purchases, revenue: Micros::new(packed.signed()?) })
}

impl NewestNames {
    /// Whether the session is counted in sums of this many sessions.
    pub(super) fn hold_session(&self, session: SessionId, counted: u64) -> bool {
        let older =
            self.sessions.len() >= limits::NEWEST_SESSIONS && self.sessions.first().is_some_and(|s| session < *s);
        older || self.sessions.contains(&session) || counted >= SESSIONS as u64
    }

    fn put(&self, to: &mut Vec<u8>) {
        packed::put(to, self.sessions.len() as u64);
        self.sessions.iter().for_each(|s| to.extend(s.0.to_be_bytes()));
        packed::put(to, self.newest.floor());
        packed::put(to, self.newest.iter().len() as u64);
        for (received, short) in self.newest.iter() {
            packed::put(to, received);
            to.extend(short.to_be_bytes());
        }
    }

    fn read(packed: &mut PackedReader<'_>) -> Option<Self> {
        let sessions = (0..packed.count(limits::NEWEST_SESSIONS)?).map(|_| packed.eight().map(SessionId));
        let sessions = sessions.collect::<Option<_>>()?;
        let floor = packed.number()?;
        let ids = (0..packed.count(limits::NEWEST_FACTS)?).map(|_| Some((packed.number()?, packed.eight()?)));
        Some(Self { sessions, newest: NewestFacts::from_parts(ids.collect::<Option<Vec<_>>>()?, floor) })
    }
}
