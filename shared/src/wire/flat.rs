//! A catalogue's bytes inside its value ([`super::catalogue`]): packed numbers (LEB128), the form's own first; texts and
//! filters behind their length; lists behind their number, in the order of [`Flat`]'s fields.

use bytes::Bytes;
use bytestring::ByteString;

use super::parts::{number, small};
use super::{WireError, filter};
use crate::actions::{Unit, Verb, Window};
use crate::catalogue::{Bid, Flat, FlatAd, FlatAdvertiser, FlatCampaign, FlatGroup, Head};
use crate::experiment::Experiment;
use crate::limits;
use crate::packed::{self, Packed, put, put_row};
use crate::units::Recipients;

const FORM: u64 = 1;
const ROADBLOCK: u64 = 1;
const STRICT: u64 = 2;
const PACED: u64 = 4;
const LIMITED: u64 = 8;

/// A catalogue's bytes.
#[must_use]
pub fn encode(flat: &Flat) -> Vec<u8> {
    let Flat { experiments, questions, filters, caps, sizes, advertisers, campaigns, groups, ads } = flat;
    let mut to = Vec::new();
    put(&mut to, FORM);
    // Few, and in no hurry.
    put_row(&mut to, serde_json::to_string(experiments).unwrap_or_default().as_bytes());
    put_all(&mut to, questions, |to, (verb, window)| {
        let unit = Unit::ALL.iter().position(|unit| *unit == window.unit).unwrap_or_default();
        [u64::from(verb.0), unit as u64, u64::from(window.interval)].into_iter().for_each(|number| put(to, number));
    });
    put_all(&mut to, filters, |to, filter| put_row(to, &filter::encode(filter)));
    put_all(&mut to, caps, |to, caps| {
        put_all(to, caps, |to, (question, limit)| {
            put(to, u64::from(*question));
            put(to, u64::from(*limit));
        });
    });
    put_all(&mut to, sizes, |to, sizes| {
        put_all(to, sizes, |to, size| size.iter().for_each(|side| put(to, u64::from(*side))));
    });
    put_all(&mut to, advertisers, |to, FlatAdvertiser { head, repeats }| {
        put_head(to, head);
        put(to, u64::from(*repeats));
    });
    put_all(&mut to, campaigns, put_campaign);
    put_all(&mut to, groups, |to, FlatGroup { head, campaign, target }| {
        put_head(to, head);
        put(to, u64::from(*campaign));
        put_maybe(to, *target);
    });
    put_all(&mut to, ads, |to, FlatAd { head, group, sizes, creative, landing }| {
        put_head(to, head);
        put(to, u64::from(*group));
        put_maybe(to, *sizes);
        put_row(to, creative.as_bytes());
        put_row(to, landing.as_bytes());
    });
    to
}

fn put_all<T>(to: &mut Vec<u8>, all: &[T], mut one: impl FnMut(&mut Vec<u8>, &T)) {
    put(to, all.len() as u64);
    all.iter().for_each(|value| one(to, value));
}

fn put_head(to: &mut Vec<u8>, Head { id, code, caps, arm }: &Head) {
    put_row(to, id.as_bytes());
    put(to, u64::from(*code));
    put_maybe(to, *caps);
    put_maybe(to, arm.map(|(place, _)| place));
    if let Some((_, code)) = arm {
        put(to, u64::from(*code));
    }
}

/// A place and one; 0 for none.
fn put_maybe(to: &mut Vec<u8>, place: Option<u32>) {
    put(to, place.map_or(0, |place| u64::from(place) + 1));
}

fn put_campaign(to: &mut Vec<u8>, campaign: &FlatCampaign) {
    let FlatCampaign { head, advertiser, target, runs, bid, roadblock, strict, paced, recipients, categories } =
        campaign;
    put_head(to, head);
    put(to, u64::from(*advertiser));
    put_maybe(to, *target);
    put(to, runs.start);
    put(to, runs.end);
    let (kind, paid) = match bid {
        Bid::CpmMicros(micros) => (0, micros),
        Bid::CpcMicros(micros) => (1, micros),
        Bid::CpaMicros(micros) => (2, micros),
        Bid::SharePpm(share) => (3, share),
    };
    put(to, kind);
    packed::put_signed(to, *paid);
    let flags = [(*roadblock, ROADBLOCK), (*strict, STRICT), (*paced, PACED), (recipients.is_some(), LIMITED)];
    put(to, flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum());
    put_all(to, categories, |to, category| put(to, u64::from(*category)));
    if let Some(Recipients { limit, share }) = recipients {
        put(to, u64::from(*limit));
        put(to, u64::from(*share));
    }
}

/// Reads a catalogue's bytes, of which its texts stay parts: an ad has three, and ads are many. What names a row that is not
/// there is refused.
///
/// # Errors
/// [`WireError`].
pub fn decode(bytes: &Bytes) -> Result<Flat, WireError> {
    let mut from = Packed(bytes);
    if number(&mut from)? != FORM {
        return Err(WireError::UnknownForm);
    }
    let experiments = std::str::from_utf8(row(&mut from)?).map_err(|_| WireError::Malformed)?;
    let experiments: Vec<Experiment> = serde_json::from_str(experiments).map_err(|_| WireError::Malformed)?;
    let questions = all(&mut from, limits::CAP_QUESTIONS, question)?;
    let filters = all(&mut from, 2 * limits::CATALOGUE_ROWS, |from| filter::decode(row(from)?))?;
    let caps = all(&mut from, 4 * limits::CATALOGUE_ROWS, |from| {
        some(from, limits::CAPS, |from| Ok((place(from, questions.len())?, small(from)?)))
    })?;
    let sizes = all(&mut from, limits::CATALOGUE_ROWS, |from| {
        some(from, limits::SIZES, |from| Ok([small(from)?, small(from)?]))
    })?;
    let (of, aimed) = (Of { bytes, caps: caps.len(), experiments: experiments.len() }, filters.len());
    let advertisers = all(&mut from, limits::CATALOGUE_ROWS, |from| {
        Ok(FlatAdvertiser { head: head(from, of)?, repeats: flag(from)? })
    })?;
    let campaigns = all(&mut from, limits::CATALOGUE_ROWS, |from| campaign(from, of, aimed, advertisers.len()))?;
    let groups = all(&mut from, limits::CATALOGUE_ROWS, |from| {
        let (head, campaign) = (head(from, of)?, place(from, campaigns.len())?);
        Ok(FlatGroup { head, campaign, target: maybe(from, aimed)? })
    })?;
    let ads = all(&mut from, limits::CATALOGUE_ROWS, |from| {
        let (head, group) = (head(from, of)?, place(from, groups.len())?);
        let sizes = maybe(from, sizes.len())?;
        Ok(FlatAd { head, group, sizes, creative: text(from, bytes)?, landing: text(from, bytes)? })
    })?;
    if !from.is_empty() {
        return Err(WireError::Malformed);
    }
    Ok(Flat { experiments, questions, filters, caps, sizes, advertisers, campaigns, groups, ads })
}

fn question(from: &mut Packed<'_>) -> Result<(Verb, Window), WireError> {
    let verb = Verb(u8::try_from(number(from)?).map_err(|_| WireError::Range)?);
    let unit = usize::try_from(number(from)?).ok().and_then(|place| Unit::ALL.get(place).copied());
    Ok((verb, Window { unit: unit.ok_or(WireError::Range)?, interval: small(from)? }))
}

/// What is read, and how many there are of what rows name by place.
#[derive(Clone, Copy)]
struct Of<'a> {
    bytes: &'a Bytes,
    caps: usize,
    experiments: usize,
}

fn head(from: &mut Packed<'_>, of: Of<'_>) -> Result<Head, WireError> {
    let (id, code, caps) = (text(from, of.bytes)?, small(from)?, maybe(from, of.caps)?);
    let arm = match maybe(from, of.experiments)? {
        Some(place) => Some((place, u8::try_from(number(from)?).map_err(|_| WireError::Range)?)),
        None => None,
    };
    Ok(Head { id, code, caps, arm })
}

fn campaign(from: &mut Packed<'_>, of: Of<'_>, filters: usize, advertisers: usize) -> Result<FlatCampaign, WireError> {
    let (head, advertiser) = (head(from, of)?, place(from, advertisers)?);
    let target = maybe(from, filters)?;
    let runs = number(from)?..number(from)?;
    let (kind, paid) = (number(from)?, from.signed().ok_or(WireError::Malformed)?);
    let bid = match kind {
        0 => Bid::CpmMicros(paid),
        1 => Bid::CpcMicros(paid),
        2 => Bid::CpaMicros(paid),
        3 => Bid::SharePpm(paid),
        _ => return Err(WireError::Range),
    };
    let flags = number(from)?;
    if flags > ROADBLOCK | STRICT | PACED | LIMITED || !bid.is_within() {
        return Err(WireError::Range);
    }
    let categories = all(from, limits::CATEGORIES, small)?;
    let [roadblock, strict, paced, limited] = [ROADBLOCK, STRICT, PACED, LIMITED].map(|flag| flags & flag != 0);
    let recipients = if limited { Some(recipients(from)?) } else { None };
    Ok(FlatCampaign { head, advertiser, target, runs, bid, roadblock, strict, paced, recipients, categories })
}

fn recipients(from: &mut Packed<'_>) -> Result<Recipients, WireError> {
    let limit = small(from)?;
    let share = u16::try_from(number(from)?).map_err(|_| WireError::Range)?;
    let recipients = Recipients { limit, share };
    if recipients.is_within() { Ok(recipients) } else { Err(WireError::Range) }
}

/// A list of at most so many.
fn all<'a, T>(
    from: &mut Packed<'a>,
    most: usize,
    mut one: impl FnMut(&mut Packed<'a>) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    let count = from.count(most).ok_or(WireError::Range)?;
    (0..count).map(|_| one(from)).collect()
}

/// The same, with something in it.
fn some<'a, T>(
    from: &mut Packed<'a>,
    most: usize,
    one: impl FnMut(&mut Packed<'a>) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    all(from, most, one).and_then(|all| if all.is_empty() { Err(WireError::Range) } else { Ok(all) })
}

fn flag(from: &mut Packed<'_>) -> Result<bool, WireError> {
    match number(from)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::Range),
    }
}

/// A place in a list of so many.
fn place(from: &mut Packed<'_>, of: usize) -> Result<u32, WireError> {
    small(from).and_then(|place| if (place as usize) < of { Ok(place) } else { Err(WireError::Range) })
}

fn maybe(from: &mut Packed<'_>, of: usize) -> Result<Option<u32>, WireError> {
    let after = small(from)?;
    if after as usize > of { Err(WireError::Range) } else { Ok(after.checked_sub(1)) }
}

fn row<'a>(from: &mut Packed<'a>) -> Result<&'a [u8], WireError> {
    from.row().ok_or(WireError::Malformed)
}

fn text(from: &mut Packed<'_>, bytes: &Bytes) -> Result<ByteString, WireError> {
    ByteString::try_from(bytes.slice_ref(row(from)?)).map_err(|_| WireError::Malformed)
}
