//! Ids of domain objects. Each id is a newtype, so that a visitor id cannot be passed as a fact id.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::base::limits;
use crate::base::time::DAY_MS;

pub use crate::base::money::Micros;
pub use crate::base::time::Millis;

/// The reason why a text is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text has the wrong length.
    #[error("wrong length")]
    Length,
    /// A character is not allowed at its position.
    #[error("a character is not allowed in this id")]
    Character,
    /// The UUID has a version other than 7.
    #[error("not a UUID of version 7")]
    Version,
}

/// One browser, named by a UUID of version 7 (RFC 9562 §5.7). Its first 48 bits are the mint time in milliseconds, so
/// byte order is age order and the oldest visitor is the smallest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VisitorId([u8; 16]);

impl Ord for VisitorId {
    // Same order as the derived one, in two comparisons: in WebAssembly the derived one compares byte by byte.
    fn cmp(&self, other: &Self) -> Ordering {
        let halves = |id: &Self| {
            let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = id.0;
            [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p])]
        };
        for (own, other) in halves(self).into_iter().zip(halves(other)) {
            if own != other {
                // In little-endian order, the first byte that differs is the lowest one.
                let at = (own ^ other).trailing_zeros() & !7;
                return (own >> at & 0xff).cmp(&(other >> at & 0xff));
            }
        }
        Ordering::Equal
    }
}

impl PartialOrd for VisitorId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl VisitorId {
    /// A placeholder that is no browser, used in an erasure of an alternate id alone. Its mint time is 0; minted ids
    /// have a later one.
    pub const ANONYMOUS: Self = Self([0, 0, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0]);

    /// Mints an id from the time and ten random bytes.
    #[must_use]
    pub fn mint(now: Millis, random: [u8; 10]) -> Self {
        let [_, _, t2, t3, t4, t5, t6, t7] = now.to_be_bytes();
        let [r0, r1, r2, r3, r4, r5, r6, r7, r8, r9] = random;
        Self([t2, t3, t4, t5, t6, t7, 0x70 | (r0 & 0x0f), r1, 0x80 | (r2 & 0x3f), r3, r4, r5, r6, r7, r8, r9])
    }

    /// Checks that 16 bytes are a visitor id.
    ///
    /// # Errors
    /// [`IdError::Version`] unless they are a UUID of version 7 with RFC 9562's variant.
    pub fn from_bytes(bytes: [u8; 16]) -> Result<Self, IdError> {
        let [_, _, _, _, _, _, version, _, variant, ..] = bytes;
        if version >> 4 == 7 && variant >> 6 == 2 { Ok(Self(bytes)) } else { Err(IdError::Version) }
    }

    /// The 16 bytes, most significant first.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The mint time, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn minted_ms(&self) -> Millis {
        let [t0, t1, t2, t3, t4, t5, ..] = self.0;
        u64::from_be_bytes([0, 0, t0, t1, t2, t3, t4, t5])
    }

    /// Appends the id's 36 characters to a text.
    pub fn push_to(&self, text: &mut String) {
        text.push_str(ascii(&uuid(&self.0)));
    }
}

impl fmt::Display for VisitorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ascii(&uuid(&self.0)))
    }
}

fn ascii(text: &[u8]) -> &str {
    std::str::from_utf8(text).unwrap_or_default()
}

/// The position of each byte's two digits among a UUID's 36 characters.
const DIGITS_AT: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

fn uuid(bytes: &[u8; 16]) -> [u8; 36] {
    let mut text = [b'-'; 36];
    for (byte, at) in bytes.iter().zip(DIGITS_AT) {
        if let Some(two) = text.get_mut(at..at + 2) {
            two.copy_from_slice(&digits(*byte));
        }
    }
    text
}

/// Parses the 36 characters of a UUID into 16 bytes.
fn parse_uuid(text: &str) -> Result<[u8; 16], IdError> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 {
        return Err(IdError::Length);
    }
    let mut hex = [0u8; 32];
    let mut taken = hex.iter_mut();
    for (i, byte) in bytes.iter().enumerate() {
        match (matches!(i, 8 | 13 | 18 | 23), byte) {
            (true, b'-') => {}
            (false, _) => *taken.next().ok_or(IdError::Length)? = *byte,
            (true, _) => return Err(IdError::Character),
        }
    }
    let mut id = [0u8; 16];
    unhex(&hex, &mut id)?;
    Ok(id)
}

impl fmt::Debug for VisitorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "visitor:{self}")
    }
}

impl FromStr for VisitorId {
    type Err = IdError;

    /// Reads the 36 characters of a UUID, of version 7 only.
    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::from_bytes(parse_uuid(text)?)
    }
}

/// The permanent name of one fact. A fact with an id that was counted before is not counted again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FactId([u8; 16]);

impl FactId {
    /// The id of a fact that a client named with a message id. A retry gives the same id, whatever fields the edge
    /// adds.
    #[must_use]
    pub fn of_message(visitor: VisitorId, message_id: &str) -> Self {
        Self::hashed(b"causeway message\0", visitor, message_id.as_bytes())
    }

    /// The id of an event that a client named. A message id is unique per visitor, event type and name.
    #[must_use]
    pub fn of_event(visitor: VisitorId, event_type: &str, name: &str, message_id: &str) -> Self {
        let message = format!("{}\0{}\0{event_type}{name}{message_id}", event_type.len(), name.len());
        Self::hashed(b"causeway event\0", visitor, message.as_bytes())
    }

    /// The id of a purchase. A visitor buys an order once, however many messages report it.
    #[must_use]
    pub fn of_order(visitor: VisitorId, order: OrderHash) -> Self {
        Self::hashed(b"causeway order\0", visitor, &order.0.to_be_bytes())
    }

    /// The id of a fact that a job of the origin makes. The hash domain differs from a client's, so no client can
    /// produce the id.
    #[must_use]
    pub fn of_job(visitor: VisitorId, name: &str) -> Self {
        Self::hashed(b"causeway job\0", visitor, name.as_bytes())
    }

    /// The id of a visitor's withdrawal. A visitor has one, however often it is reported.
    #[must_use]
    pub fn of_withdrawal(visitor: VisitorId) -> Self {
        Self::hashed(b"causeway withdrawal\0", visitor, b"")
    }

    /// The id of a visitor's erasure, which is its receipt. A repeated request gets the same receipt.
    #[must_use]
    pub fn of_erasure(visitor: VisitorId) -> Self {
        Self::hashed(b"causeway erasure\0", visitor, b"")
    }

    /// The id as a receipt: the 36 characters of a UUID (RFC 9562, without version and variant bits).
    #[must_use]
    pub fn receipt(self) -> String {
        ascii(&uuid(&self.0)).to_owned()
    }

    /// Parses a receipt.
    ///
    /// # Errors
    /// [`IdError`] unless the text is 36 characters in a UUID's form.
    pub fn from_receipt(text: &str) -> Result<Self, IdError> {
        parse_uuid(text).map(Self)
    }

    /// The id of an action. An action counts once per insertion, action type, view type and UTC day.
    #[must_use]
    pub fn of_action(visitor: VisitorId, insertion: InsertionId, action_type: u8, view_type: u8, at: Millis) -> Self {
        let day = u32::try_from(at / DAY_MS).unwrap_or(u32::MAX);
        let mut name = insertion.0.to_vec();
        name.extend([action_type, view_type]);
        name.extend(day.to_be_bytes());
        Self::hashed(b"causeway action\0", visitor, &name)
    }

    /// The id of the fact that a visitor got an offer code. A repeated report, after a lost answer, is the same fact.
    #[must_use]
    pub fn of_offer_code(visitor: VisitorId, campaign: u32, number: u32) -> Self {
        let name = [campaign.to_be_bytes(), number.to_be_bytes()].concat();
        Self::hashed(b"causeway unit\0", visitor, &name)
    }

    fn hashed(domain: &[u8], visitor: VisitorId, text: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(domain);
        hash.update(visitor.as_bytes());
        hash.update(text);
        let mut id = [0u8; 16];
        for (to, from) in id.iter_mut().zip(hash.finalize()) {
            *to = from;
        }
        Self(id)
    }

    /// Makes an id from 16 random or received bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The first eight bytes: enough to distinguish the few newest facts of one visitor.
    #[must_use]
    pub fn short(&self) -> u64 {
        first_eight(&self.0)
    }
}

fn first_eight(bytes: &[u8; 16]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *bytes;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

impl fmt::Display for FactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for FactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fact:{self}")
    }
}

/// The code of an alternate id kind (`member`, `partner`, …). The configuration assigns a code once and never reuses
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindCode(pub u8);

impl KindCode {
    /// The reserved kind of an id shared by two visitors that were declared to belong together. No configured kind has
    /// it.
    pub const PAIR: Self = Self(0);
}

/// A keyed hash of an alternate id: the key's id in the first byte, then 15 bytes of HMAC-SHA-256. The raw value never
/// leaves the edge (invariant 11).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AltHash(pub [u8; 16]);

impl fmt::Display for AltHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for AltHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "alt:{self}")
    }
}

impl FromStr for AltHash {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let mut bytes = [0u8; 16];
        unhex(text.as_bytes(), &mut bytes)?;
        Ok(Self(bytes))
    }
}

/// An alternate id of a person: its kind and its keyed hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AlternateId {
    /// The kind of the id.
    pub kind: KindCode,
    /// The keyed hash of its value.
    pub hash: AltHash,
}

impl AlternateId {
    /// The id that exactly these two visitors share. The order of the arguments does not matter.
    #[must_use]
    pub fn pair(a: VisitorId, b: VisitorId) -> Self {
        let both = Sha256::new().chain_update(a.min(b).as_bytes()).chain_update(a.max(b).as_bytes()).finalize();
        let mut hash = [0; 16];
        hash.iter_mut().zip(both).for_each(|(to, from)| *to = from);
        Self { kind: KindCode::PAIR, hash: AltHash(hash) }
    }
}

/// A session of one visitor: its first minute in the upper 32 bits, and 32 random bits from the edge. Ids grow with
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl SessionId {
    /// Mints an id from the time and four random bytes.
    #[must_use]
    pub fn mint(now: Millis, random: [u8; 4]) -> Self {
        Self(((now / 60_000) << 32) | u64::from(u32::from_be_bytes(random)))
    }
}

/// One placement of an ad in front of one visitor; minted by the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InsertionId(pub [u8; 16]);

impl InsertionId {
    /// The first eight bytes: enough to distinguish the few newest insertions of one person.
    #[must_use]
    pub fn short(&self) -> u64 {
        first_eight(&self.0)
    }
}

impl fmt::Display for InsertionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

/// The version of a snapshot, ordered by restore epoch, then counter. Versions only grow, even across a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SnapshotVersion {
    /// The number of times that the origin's store was restored from a backup.
    pub restore: u32,
    /// The counter, one for the whole origin.
    pub counter: u64,
}

impl fmt::Display for SnapshotVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.restore, self.counter)
    }
}

/// The number of a membership decision, from one counter of the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

/// A publisher whose sites share one identity space: 1 to 32 characters of `a-z`, `0-9` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Arc<str>);

impl TenantId {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TenantId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if text.is_empty() || text.len() > 32 {
            return Err(IdError::Length);
        }
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if text.bytes().all(fits) { Ok(Self(text.into())) } else { Err(IdError::Character) }
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(&bytes.iter().copied().flat_map(digits).map(char::from).collect::<String>())
}

/// The two hex digits of a byte. Written by hand: `{:02x}` takes ten times as long, and every answer contains ids.
fn digits(byte: u8) -> [u8; 2] {
    let digit = |half: u8| if half < 10 { b'0' + half } else { b'a' - 10 + half };
    [digit(byte >> 4), digit(byte & 15)]
}

fn unhex(text: &[u8], to: &mut [u8]) -> Result<(), IdError> {
    if text.len() != to.len() * 2 {
        return Err(IdError::Length);
    }
    for (pair, byte) in text.chunks_exact(2).zip(to) {
        let digit = |b: &u8| (*b as char).to_digit(16).ok_or(IdError::Character);
        let mut value = 0;
        for half in pair {
            value = value << 4 | digit(half)?;
        }
        *byte = u8::try_from(value).map_err(|_| IdError::Character)?;
    }
    Ok(())
}

/// An order's id, hashed to the first 8 bytes of its SHA-256. A person has few orders, so a collision within one person
/// is negligible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderHash(pub u64);

impl OrderHash {
    /// Hashes an order id; `None` unless it has 1 to [`limits::MESSAGE_ID_BYTES`] bytes.
    #[must_use]
    pub fn read(order_id: &str) -> Option<Self> {
        (1..=limits::MESSAGE_ID_BYTES).contains(&order_id.len()).then(|| Self::of(order_id))
    }

    /// Hashes an order id whose length is already checked.
    #[must_use]
    pub fn of(order_id: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"causeway order\0");
        hash.update(order_id);
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hash.finalize());
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_visitor_survives_its_text_and_sorts_by_age() {
        let old = VisitorId::mint(1_700_000_000_000, [0xff; 10]);
        let new = VisitorId::mint(1_700_000_000_001, [0; 10]);
        assert!(old < new);
        assert_eq!(old.minted_ms(), 1_700_000_000_000);
        assert_eq!(old.to_string().parse(), Ok(old));
        assert_eq!(old.to_string().len(), 36);
    }

    #[test]
    fn visitors_sort_as_their_bytes_do() {
        let values = [0, 1, 0x7f, 0x80, 0xff];
        let ids: Vec<VisitorId> = (0..16)
            .flat_map(|at| values.map(|value| std::array::from_fn(|i| if i == at { value } else { i as u8 * 15 })))
            .map(VisitorId)
            .collect();
        for (a, b) in ids.iter().flat_map(|a| ids.iter().map(move |b| (a, b))) {
            assert_eq!(a.cmp(b), a.as_bytes().cmp(b.as_bytes()), "{a} {b}");
        }
    }

    #[test]
    fn other_uuids_are_refused() {
        let parse = |s: &str| s.parse::<VisitorId>().unwrap_err();
        assert_eq!(parse("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), IdError::Version);
        assert_eq!(parse("6ba7b810-9dad-71d1-80b4-00c04fd430cg"), IdError::Character);
        assert_eq!(parse("6ba7b8109-dad-71d1-80b4-00c04fd430c8"), IdError::Character);
        assert_eq!(parse(""), IdError::Length);
        assert_eq!(parse(&"é".repeat(18)), IdError::Character);
    }

    #[test]
    fn a_receipt_survives_its_text_and_nobody_is_no_browser() {
        let id = FactId::of_erasure(VisitorId::mint(1, [1; 10]));
        assert_eq!(FactId::from_receipt(&id.receipt()), Ok(id));
        assert_eq!(FactId::from_receipt("x"), Err(IdError::Length));
        assert_eq!(VisitorId::from_bytes(*VisitorId::ANONYMOUS.as_bytes()), Ok(VisitorId::ANONYMOUS));
        assert_eq!(VisitorId::ANONYMOUS, VisitorId::mint(0, [0; 10]));
    }

    #[test]
    fn a_message_id_names_its_fact_by_visitor() {
        let visitor = VisitorId::mint(1, [1; 10]);
        let other = VisitorId::mint(1, [2; 10]);
        assert_eq!(FactId::of_message(visitor, "m"), FactId::of_message(visitor, "m"));
        assert_ne!(FactId::of_message(visitor, "m"), FactId::of_message(other, "m"));
        assert_ne!(FactId::of_message(visitor, "m"), FactId::of_job(visitor, "m"));
    }
}
