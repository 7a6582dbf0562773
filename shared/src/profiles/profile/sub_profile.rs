//! One visitor's profile at one version, packed, as a snapshot carries it. A reader pays for the parts it asks for.

use std::cmp::Reverse;

use super::{MissingParts, NewestFacts, ProfileTotals, SESSIONS};
use crate::base::ids::{Millis, SessionId, SnapshotVersion};
use crate::base::limits;
use crate::base::packed::{self, PackedReader, SharedBytes};
use crate::base::planted::{self, PlantedBug};
use crate::base::time::Minute;
use crate::facts::actions::PackedActions;
use crate::facts::attributes::PackedAttributes;
use crate::facts::events::{self, EventCount};
use crate::facts::exposures::Exposures;
use crate::facts::offer_slots::HeldSlots;
use crate::facts::orders::VisitorOrders;
use crate::facts::segments::PackedSegments;

const SEEN: u64 = 1;
const NAMED: u64 = 2;
const ACTED: u64 = 4;
const SEGMENTED: u64 = 8;
const ATTRIBUTED: u64 = 16;
const EXPOSED: u64 = 32;
const UNITS: u64 = 64;
const RECENT: u64 = 128;
const ORDERED: u64 = 256;
/// Above the flags lie the bits of [`MissingParts`].
const MISSING_SHIFT: u32 = 9;

/// One visitor's profile at one version. Two of the same version hold the same, but for what a snapshot had no room for.
#[derive(Clone, PartialEq, Eq)]
pub struct SubProfile {
    version: SnapshotVersion,
    packed: SharedBytes,
}

/// What a sub-profile says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubContent {
    /// The sums.
    pub totals: ProfileTotals,
    /// When the first and last fact happened.
    pub seen: Option<(Millis, Millis)>,
    /// The facts' names; only in the visitor's own snapshot, whose ledger needs them.
    pub names: Option<NewestNames>,
    /// The actions, packed; empty for none.
    pub actions: Vec<u8>,
    /// The segments, packed; empty for none.
    pub segments: Vec<u8>,
    /// The attributes, packed; empty for none.
    pub attributes: Vec<u8>,
    /// The exposures, packed; empty for none.
    pub exposures: Vec<u8>,
    /// The units of limited offers, packed; empty for none.
    pub units: Vec<u8>,
    /// When page views and purchases were, packed; empty where that is not said.
    pub recent: Vec<u8>,
    /// The orders, packed; empty for none.
    pub orders: Vec<u8>,
    /// What a snapshot had no room for.
    pub missing: MissingParts,
}

/// What the newest facts are called.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewestNames {
    /// The newest sessions, oldest first.
    pub sessions: Vec<SessionId>,
    /// The newest facts.
    pub newest: NewestFacts,
}

impl SubProfile {
    /// Packs what it is to say.
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
            units,
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
            | flag(!units.is_empty(), UNITS)
            | flag(!recent.is_empty(), RECENT)
            | flag(!orders.is_empty(), ORDERED);
        let missing = u64::from(missing.bits()) << MISSING_SHIFT;
        packed::put(&mut to, flag(seen.is_some(), SEEN) | flag(names.is_some(), NAMED) | parts | missing);
        // First, so that a decision, which asks for them, need not read what comes behind.
        for part in [actions, segments].into_iter().filter(|part| !part.is_empty()) {
            packed::put_row(&mut to, part);
        }
        [totals.pages, totals.sessions, totals.purchases].into_iter().for_each(|n| packed::put(&mut to, n));
        packed::put_signed(&mut to, totals.revenue);
        if let Some((first, last)) = seen {
            packed::put(&mut to, *first);
            packed::put(&mut to, last.saturating_sub(*first));
        }
        if let Some(names) = names {
            names.put(&mut to);
        }
        // Last, as all that is to come: a reader of the release before passes over what lies behind.
        for part in [attributes, exposures, units, recent, orders].into_iter().filter(|part| !part.is_empty()) {
            packed::put_row(&mut to, part);
        }
        Self { version, packed: to.into() }
    }

    /// From a snapshot's bytes, as they are: what they do not say is zero, or not there.
    #[must_use]
    pub fn from_packed(version: SnapshotVersion, packed: SharedBytes) -> Self {
        Self { version, packed }
    }

    /// The bytes.
    #[must_use]
    pub fn packed(&self) -> &[u8] {
        &self.packed
    }

    /// The origin's version of this visitor.
    #[must_use]
    pub fn version(&self) -> SnapshotVersion {
        self.version
    }

    /// What the snapshot that it comes from had no room for.
    #[must_use]
    pub fn missing(&self) -> MissingParts {
        missing_in(PackedReader(&self.packed).number().unwrap_or_default())
    }

    /// The sums.
    #[must_use]
    pub fn totals(&self) -> ProfileTotals {
        self.parts().and_then(|mut parts| read_totals(&mut parts.rest)).unwrap_or_default()
    }

    /// When the first and the last of its facts happened.
    #[must_use]
    pub fn seen(&self) -> Option<(Millis, Millis)> {
        let SubParts { flags, mut rest, .. } = self.parts()?;
        read_totals(&mut rest)?;
        read_seen(flags, &mut rest)?
    }

    /// The actions; `None` where there are none, or they are not of the form.
    #[must_use]
    pub fn actions(&self) -> Option<PackedActions<'_>> {
        PackedActions::read(self.parts()?.actions).filter(|actions| !actions.is_empty())
    }

    /// The segments; `None` where there are none, or they are not of the form.
    #[must_use]
    pub fn segments(&self) -> Option<PackedSegments<'_>> {
        PackedSegments::read(self.parts()?.segments)
    }

    /// The attributes; `None` where there are none, or they are not of the form.
    #[must_use]
    pub fn attributes(&self) -> Option<PackedAttributes<'_>> {
        PackedAttributes::read(self.behind(ATTRIBUTED)?)
    }

    /// The exposures; none where they are not of the form.
    #[must_use]
    pub fn exposures(&self) -> Exposures {
        self.behind(EXPOSED).and_then(Exposures::read).unwrap_or_default()
    }

    /// The units of limited offers; none where they are not of the form.
    #[must_use]
    pub fn units(&self) -> HeldSlots {
        self.behind(UNITS).and_then(HeldSlots::read).unwrap_or_default()
    }

    /// How often an event was, from one minute to before another; `None` of one that no snapshot says it of.
    #[must_use]
    pub fn within(&self, name: &str, from: Minute, to: Minute) -> Option<EventCount> {
        events::recent_within(self.behind(RECENT).unwrap_or_default(), name, from, to)
    }

    /// The orders; none where they are not of the form.
    #[must_use]
    pub fn orders(&self) -> VisitorOrders {
        self.behind(ORDERED).and_then(VisitorOrders::read).unwrap_or_default()
    }

    /// Whether it names its newest facts.
    #[must_use]
    pub fn is_named(&self) -> bool {
        PackedReader(&self.packed).number().unwrap_or_default() & NAMED != 0
    }

    /// The newest facts' names, if it carries them.
    #[must_use]
    pub fn names(&self) -> Option<NewestNames> {
        self.content()?.names
    }

    /// Whether the fact is in the sums. Without the newest facts' names: no.
    #[must_use]
    pub fn holds(&self, received: Millis, short: u64) -> bool {
        self.names().is_some_and(|names| names.newest.holds(received, short))
    }

    /// All that it says; `None` when the bytes are not of the form.
    #[must_use]
    pub fn content(&self) -> Option<SubContent> {
        let SubParts { flags, actions, segments, mut rest } = self.parts()?;
        let (totals, seen, names) = read_sums(flags, &mut rest)?;
        let attributes = read_part(flags, ATTRIBUTED, &mut rest)?;
        let (exposures, units) = (read_part(flags, EXPOSED, &mut rest)?, read_part(flags, UNITS, &mut rest)?);
        let (recent, orders) = (read_part(flags, RECENT, &mut rest)?, read_part(flags, ORDERED, &mut rest)?);
        let [actions, segments, attributes, exposures, units, recent, orders] =
            [actions, segments, attributes, exposures, units, recent, orders].map(<[u8]>::to_vec);
        let missing = missing_in(flags);
        Some(SubContent {
            totals,
            seen,
            names,
            actions,
            segments,
            attributes,
            exposures,
            units,
            recent,
            orders,
            missing,
        })
    }

    /// One of the parts behind the sums; `None` where it is not there.
    fn behind(&self, part: u64) -> Option<&[u8]> {
        let SubParts { flags, mut rest, .. } = self.parts()?;
        if flags & part == 0 {
            return None;
        }
        read_sums(flags, &mut rest)?;
        for before in [ATTRIBUTED, EXPOSED, UNITS, RECENT].into_iter().filter(|before| *before < part) {
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

    /// The newer of the two; of the same version the one that names its newest facts, then the one that misses less, then the
    /// longer one.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        if planted::is_active(PlantedBug::SumInsteadOfUnion) {
            let (Some(mut all), Some(more)) = (self.content(), other.content()) else { return self };
            all.totals = all.totals.plus(more.totals);
            return Self::pack(self.version.max(other.version), &all);
        }
        if other.rank() > self.rank() { other } else { self }
    }

    /// What decides between two: total, so that the join does not ask who came first.
    fn rank(&self) -> (SnapshotVersion, bool, Reverse<u32>, usize, &[u8]) {
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

/// `None` when the bytes are not of the form.
fn read_seen(flags: u64, from: &mut PackedReader<'_>) -> Option<Option<(Millis, Millis)>> {
    if flags & SEEN == 0 {
        return Some(None);
    }
    let (first, span) = (from.number()?, from.number()?);
    Some(Some((first, first.checked_add(span)?)))
}

/// The next part of those behind the sums, where its flag is set.
fn read_part<'a>(flags: u64, flag: u64, from: &mut PackedReader<'a>) -> Option<&'a [u8]> {
    if flags & flag == 0 { Some(&[]) } else { from.row() }
}

fn read_totals(packed: &mut PackedReader<'_>) -> Option<ProfileTotals> {
    let (pages, sessions, purchases) = (packed.number()?, packed.number()?, packed.number()?);
    Some(ProfileTotals { pages, sessions, purchases, revenue: packed.signed()? })
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
