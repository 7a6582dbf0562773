//! Payloads of the identity, ledger and session cookies.

use serde::{Deserialize, Serialize};
use serde_bytes::{ByteArray, ByteBuf};

use super::WireError;
use super::cbor::{self, FormBounds};
use super::parts::{self, SixteenBytes, VersionForm};
use crate::base::first_records::{FirstRecord, FirstRecords};
use crate::base::ids::SessionId;
use crate::base::limits;
use crate::base::packed::{PackedReader, put};
use crate::facts::exposures::Exposures;
use crate::facts::offer_codes::HeldOfferCodes;
use crate::identity::IdentityCookie;
use crate::profiles::ledger::{Ledger, PlacedInsertion, RunningSession, reserved};
use crate::profiles::profile::LaterPage;

const FORM: u8 = 1;
const COOKIE: FormBounds = FormBounds { bytes: limits::COOKIE_BYTES, items: 128, levels: 8 };

/// [`IdentityCookie`].
#[derive(Serialize, Deserialize)]
struct IdentityForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "v")]
    visitor: SixteenBytes,
    #[serde(rename = "w")]
    written: u64,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    tag: Option<SixteenBytes>,
    #[serde(rename = "c", default, skip_serializing_if = "Vec::is_empty")]
    covered: Vec<u32>,
    #[serde(rename = "e", default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<EarlierForm>,
    #[serde(rename = "p", default, skip_serializing_if = "Vec::is_empty")]
    pending: Vec<SixteenBytes>,
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    login: Option<LoginForm>,
}

/// An earlier visitor of the browser, with the unique id of its member.
#[derive(Serialize, Deserialize)]
struct EarlierForm {
    #[serde(rename = "t")]
    tag: SixteenBytes,
    #[serde(rename = "v")]
    visitor: SixteenBytes,
}

/// The fact of a login: its receive time and the short form of its id.
#[derive(Serialize, Deserialize)]
struct LoginForm {
    #[serde(rename = "r")]
    received: u64,
    #[serde(rename = "s")]
    short: u64,
}

/// [`Ledger`]. Every request carries it, so its lists are columns: a page takes at most 14 bytes instead of 22 as a
/// map.
#[derive(Serialize, Deserialize)]
struct LedgerForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "v")]
    visitor: SixteenBytes,
    /// The newest snapshot version that the browser has seen.
    #[serde(rename = "h")]
    highest: VersionForm,
    /// The newest time in the ledger. Other times are stored as milliseconds before it.
    #[serde(rename = "n")]
    newest: u64,
    /// Time of the last page of the running session, which is the first in `sessions`.
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    last: Option<u64>,
    /// Column: eight bytes per session.
    #[serde(rename = "s", default, skip_serializing_if = "<[u8]>::is_empty")]
    sessions: ByteBuf,
    /// Column: the first eight bytes of a page's id, its time, and the index of its session.
    #[serde(rename = "p", default, skip_serializing_if = "<[u8]>::is_empty")]
    pages: ByteBuf,
    /// Column in the form of [`reserved`].
    #[serde(rename = "r", default, skip_serializing_if = "<[u8]>::is_empty")]
    reserved: ByteBuf,
    /// Column in the form of [`FirstRecords::pack`].
    #[serde(rename = "x", default, skip_serializing_if = "<[u8]>::is_empty")]
    exposed: ByteBuf,
    /// Column in the form of [`FirstRecords::pack`].
    #[serde(rename = "u", default, skip_serializing_if = "<[u8]>::is_empty")]
    offer_codes: ByteBuf,
}

/// Encodes the identity cookie's payload.
#[must_use]
pub fn encode_identity(cookie: &IdentityCookie) -> Vec<u8> {
    let earlier = cookie
        .earlier
        .iter()
        .map(|(tag, visitor)| EarlierForm { tag: ByteArray::new(tag.0), visitor: parts::put_visitor(*visitor) });
    cbor::encode(&IdentityForm {
        form: FORM,
        visitor: parts::put_visitor(cookie.visitor),
        written: cookie.written,
        tag: cookie.tag.map(|tag| ByteArray::new(tag.0)),
        covered: cookie.covered.clone(),
        earlier: earlier.collect(),
        pending: parts::put_visitors(&cookie.pending),
        login: cookie.login.map(|(received, short)| LoginForm { received, short }),
    })
}

/// Decodes the identity cookie's payload.
///
/// # Errors
/// [`WireError`] for an invalid payload.
pub fn decode_identity(bytes: &[u8]) -> Result<IdentityCookie, WireError> {
    let form: IdentityForm = cbor::decode(bytes, FORM, COOKIE)?;
    let earlier = |earlier: EarlierForm| Ok((parts::hash(earlier.tag), parts::read_visitor(earlier.visitor)?));
    Ok(IdentityCookie {
        visitor: parts::read_visitor(form.visitor)?,
        written: form.written,
        tag: form.tag.map(parts::hash),
        covered: parts::read_list(form.covered, limits::COVERED, Ok)?,
        earlier: parts::read_list(form.earlier, limits::EARLIER_VISITORS, earlier)?,
        pending: parts::read_visitors(form.pending, limits::PENDING_SIBLINGS)?,
        login: form.login.map(|login| (login.received, login.short)),
    })
}

/// Encodes the ledger cookie's payload.
#[must_use]
pub fn encode_ledger(ledger: &Ledger) -> Vec<u8> {
    let mut sessions: Vec<SessionId> = ledger.session.iter().map(|(session, _)| *session).collect();
    let times = ledger.pages.iter().map(|page| page.received).chain(ledger.session.map(|(_, last)| last));
    let newest = times.max().unwrap_or(0);
    let mut pages = Vec::new();
    for page in &ledger.pages {
        let index = sessions.iter().position(|session| *session == page.session).unwrap_or_else(|| {
            sessions.push(page.session);
            sessions.len() - 1
        });
        pages.extend(page.short.to_be_bytes());
        put(&mut pages, newest - page.received);
        put(&mut pages, index as u64);
    }
    let sessions: Vec<u8> = sessions.iter().flat_map(|session| session.0.to_be_bytes()).collect();
    cbor::encode(&LedgerForm {
        form: FORM,
        visitor: parts::put_visitor(ledger.visitor),
        highest: ledger.highest.into(),
        newest,
        last: ledger.session.map(|(_, last)| newest - last),
        sessions: ByteBuf::from(sessions),
        pages: ByteBuf::from(pages),
        reserved: ByteBuf::from(reserved::pack(&ledger.reserved)),
        exposed: ByteBuf::from(ledger.exposed.pack()),
        offer_codes: ByteBuf::from(ledger.offer_codes.pack()),
    })
}

/// Decodes the ledger cookie's payload.
///
/// # Errors
/// [`WireError`] for an invalid payload.
pub fn decode_ledger(bytes: &[u8]) -> Result<Ledger, WireError> {
    let form: LedgerForm = cbor::decode(bytes, FORM, COOKIE)?;
    let at = |ago: u64| form.newest.checked_sub(ago).ok_or(WireError::Range);
    let sessions = sessions(&form.sessions)?;
    let mut pages = Vec::new();
    let mut left = PackedReader(&form.pages);
    while !left.is_empty() {
        let short = left.eight().ok_or(WireError::Malformed)?;
        let received = at(parts::read_number(&mut left)?)?;
        let index = usize::try_from(parts::read_number(&mut left)?).map_err(|_| WireError::Range)?;
        pages.push(LaterPage { received, short, session: *sessions.get(index).ok_or(WireError::Range)? });
        if pages.len() > limits::LEDGER_ENTRIES {
            return Err(WireError::Range);
        }
    }
    let last = form.last.map(at).transpose()?;
    let exposed: Exposures = firsts(&form.exposed, limits::LEDGER_EXPOSURES)?;
    let offer_codes: HeldOfferCodes = firsts(&form.offer_codes, limits::LEDGER_OFFER_CODES)?;
    Ok(Ledger {
        visitor: parts::read_visitor(form.visitor)?,
        highest: form.highest.into(),
        session: last.and_then(|last| sessions.first().map(|session| (*session, last))),
        pages,
        reserved: reservations(&form.reserved)?,
        exposed,
        offer_codes,
    })
}

/// [`RunningSession`].
#[derive(Serialize, Deserialize)]
struct SessionForm {
    #[serde(rename = "f")]
    form: u8,
    #[serde(rename = "v")]
    visitor: SixteenBytes,
    #[serde(rename = "s")]
    session: u64,
    /// Time of the session's last page.
    #[serde(rename = "l")]
    last: u64,
}

/// Encodes the session cookie's payload.
#[must_use]
pub fn encode_session(running: &RunningSession) -> Vec<u8> {
    let RunningSession { visitor, session, last } = *running;
    cbor::encode(&SessionForm { form: FORM, visitor: parts::put_visitor(visitor), session: session.0, last })
}

/// Decodes the session cookie's payload.
///
/// # Errors
/// [`WireError`] for an invalid payload.
pub fn decode_session(bytes: &[u8]) -> Result<RunningSession, WireError> {
    let form: SessionForm = cbor::decode(bytes, FORM, COOKIE)?;
    Ok(RunningSession {
        visitor: parts::read_visitor(form.visitor)?,
        session: SessionId(form.session),
        last: form.last,
    })
}

/// The running session and the sessions of the pages.
fn sessions(column: &[u8]) -> Result<Vec<SessionId>, WireError> {
    let (sessions, rest) = column.as_chunks();
    if !rest.is_empty() {
        return Err(WireError::Malformed);
    }
    if sessions.len() > limits::LEDGER_ENTRIES + 1 {
        return Err(WireError::Range);
    }
    Ok(sessions.iter().map(|session| SessionId(u64::from_be_bytes(*session))).collect())
}

fn reservations(bytes: &[u8]) -> Result<Vec<PlacedInsertion>, WireError> {
    if bytes.len() > limits::RESERVATION_BYTES {
        return Err(WireError::TooLong);
    }
    reserved::read(bytes).ok_or(WireError::Malformed)
}

fn firsts<T: FirstRecord>(bytes: &[u8], most: usize) -> Result<FirstRecords<T>, WireError> {
    let mut firsts = FirstRecords::read(bytes).ok_or(WireError::Malformed)?;
    firsts.keep_newest(most);
    Ok(firsts)
}
