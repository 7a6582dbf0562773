//! The payloads of the two cookies.

use minicbor::decode::Decoder;

use super::parts::{self, WireError};
use crate::experiment::Exposures;
use crate::first::{First, Firsts};
use crate::identity::IdentityCookie;
use crate::ids::{Millis, SessionId};
use crate::ledger::{Ledger, Reservation, reserved};
use crate::limits;
use crate::profile::Beyond;
use crate::units::Units;

const FORM: u8 = 1;
/// Pages that a ledger may bring: earlier releases wrote so many.
const PAGES_READ: usize = 64;

/// The identity cookie's payload. The login is a last field, which is not there without one.
#[must_use]
pub fn encode_identity(cookie: &IdentityCookie) -> Vec<u8> {
    parts::encode(|e| {
        e.array(if cookie.login.is_some() { 8 } else { 7 })?;
        e.u8(FORM)?.bytes(cookie.visitor.as_bytes())?.u64(cookie.written)?;
        match cookie.tag {
            Some(tag) => e.bytes(&tag.0)?,
            None => e.null()?,
        };
        e.array(cookie.covered.len() as u64)?;
        cookie.covered.iter().try_for_each(|c| e.u32(*c).map(drop))?;
        e.array(cookie.earlier.len() as u64)?;
        cookie.earlier.iter().try_for_each(|(tag, v)| e.array(2)?.bytes(&tag.0)?.bytes(v.as_bytes()).map(drop))?;
        e.array(cookie.pending.len() as u64)?;
        cookie.pending.iter().try_for_each(|v| e.bytes(v.as_bytes()).map(drop))?;
        if let Some((received, short)) = cookie.login {
            e.array(2)?.u64(received)?.u64(short)?;
        }
        Ok(())
    })
}

/// Reads the identity cookie's payload.
///
/// # Errors
/// [`WireError`].
pub fn decode_identity(bytes: &[u8]) -> Result<IdentityCookie, WireError> {
    let login = parts::fields(bytes) > 7;
    parts::form(bytes, FORM, if login { 7 } else { 6 }, |d| {
        Ok(IdentityCookie {
            visitor: parts::visitor(d)?,
            written: d.u64()?,
            tag: parts::option(d, parts::alt_hash)?,
            covered: parts::values(d, limits::COVERED, |d| Ok(d.u32()?))?,
            earlier: parts::values(d, limits::EARLIER_VISITORS, |d| {
                parts::record(d, 2, |d| Ok((parts::alt_hash(d)?, parts::visitor(d)?)))
            })?,
            pending: parts::values(d, limits::PENDING_SIBLINGS, parts::visitor)?,
            login: if login { Some(parts::record(d, 2, |d| Ok((d.u64()?, d.u64()?)))?) } else { None },
        })
    })
}

/// The ledger cookie's payload: times are milliseconds before the newest one, sessions numbers in a list.
/// Reservations, exposures and units are last fields: those that are there, and what comes before them.
#[must_use]
pub fn encode_ledger(ledger: &Ledger) -> Vec<u8> {
    let mut sessions: Vec<SessionId> = ledger.session.iter().map(|(s, _)| *s).collect();
    for page in &ledger.pages {
        if !sessions.contains(&page.session) {
            sessions.push(page.session);
        }
    }
    let newest = ledger.pages.iter().map(|p| p.received).chain(ledger.session.map(|s| s.1)).max().unwrap_or(0);
    parts::encode(|e| {
        let last = [reserved::pack(&ledger.reserved), ledger.exposed.pack(), ledger.units.pack()];
        let there = last.iter().rposition(|field| !field.is_empty()).map_or(0, |field| field + 1);
        e.array(7 + there as u64)?;
        e.u8(FORM)?.bytes(ledger.visitor.as_bytes())?;
        parts::put_version(e, ledger.highest)?;
        e.u64(newest)?;
        match ledger.session {
            Some((_, last)) => e.u64(newest - last)?,
            None => e.null()?,
        };
        e.array(sessions.len() as u64)?;
        sessions.iter().try_for_each(|s| e.u64(s.0).map(drop))?;
        e.array(3 * ledger.pages.len() as u64)?;
        for page in &ledger.pages {
            let session = sessions.iter().position(|s| *s == page.session).unwrap_or(0);
            e.u64(page.short)?.u64(newest - page.received)?.u64(session as u64)?;
        }
        last.iter().take(there).try_for_each(|field| e.bytes(field).map(drop))
    })
}

/// Reads the ledger cookie's payload. Of an earlier release's the newest [`limits::LEDGER_ENTRIES`] pages are kept.
///
/// # Errors
/// [`WireError`].
pub fn decode_ledger(bytes: &[u8]) -> Result<Ledger, WireError> {
    let fields = parts::fields(bytes).clamp(7, 10);
    parts::form(bytes, FORM, usize::try_from(fields - 1).unwrap_or_default(), |d| {
        let visitor = parts::visitor(d)?;
        let highest = parts::version(d)?;
        let newest = d.u64()?;
        let last = parts::option(d, |d| before(d, newest))?;
        let sessions = parts::values(d, PAGES_READ + 1, |d| Ok(SessionId(d.u64()?)))?;
        let entries = parts::list(d, 3 * PAGES_READ)?;
        let mut pages = Vec::with_capacity(entries / 3);
        for _ in 0..entries / 3 {
            let (short, received) = (d.u64()?, before(d, newest)?);
            let number = usize::try_from(d.u64()?).map_err(|_| WireError::Range)?;
            pages.push(Beyond { received, short, session: *sessions.get(number).ok_or(WireError::Range)? });
        }
        pages.drain(..pages.len().saturating_sub(limits::LEDGER_ENTRIES));
        let reserved = if fields > 7 { reservations(d.bytes()?)? } else { Vec::new() };
        let exposed = if fields > 8 { firsts(d.bytes()?, limits::LEDGER_EXPOSURES)? } else { Exposures::default() };
        let units = if fields > 9 { firsts(d.bytes()?, limits::LEDGER_UNITS)? } else { Units::default() };
        let session = last.and_then(|last| sessions.first().map(|s| (*s, last)));
        Ok(Ledger { visitor, highest, session, pages, reserved, exposed, units })
    })
}

fn reservations(bytes: &[u8]) -> Result<Vec<Reservation>, WireError> {
    if bytes.len() > limits::RESERVATION_BYTES {
        return Err(WireError::TooLong);
    }
    reserved::read(bytes).ok_or(WireError::Malformed)
}

fn firsts<T: First>(bytes: &[u8], most: usize) -> Result<Firsts<T>, WireError> {
    let mut firsts = Firsts::read(bytes).ok_or(WireError::Malformed)?;
    firsts.keep_newest(most);
    Ok(firsts)
}

fn before(d: &mut Decoder<'_>, newest: Millis) -> Result<Millis, WireError> {
    newest.checked_sub(d.u64()?).ok_or(WireError::Range)
}
