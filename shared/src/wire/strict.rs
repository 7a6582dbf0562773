//! Strict caps' forms: what an object stores, what it is asked, what it answers. Packed, a form's number first.

use crate::actions::{Entity, InsertionHash, Level, Unit, Window};
use crate::ids::{Epoch, TenantId, VisitorId};
use crate::limits;
use crate::packed::{Packed, put, put_row};
use crate::strict::{Answer, Ask, Call, Candidate, Claim, Entries, Entry, Links, Object, Seen, StrictCap, Wanted};
use crate::time::Minute;

const FORM: u64 = 1;

/// What an object stores.
#[must_use]
pub fn encode_object(object: &Object) -> Vec<u8> {
    let Object { latest, epoch, forward, told, entries, full_until } = object;
    let mut to = Vec::new();
    put(&mut to, FORM);
    put(&mut to, latest.0.into());
    put(&mut to, epoch.0);
    put_visitor(&mut to, *forward);
    put(&mut to, u64::from(*told));
    put_entries(&mut to, entries);
    put(&mut to, full_until.0.into());
    to
}

/// Reads what an object stored; no bytes are a fresh object. `None` when they are not of the form.
#[must_use]
pub fn decode_object(bytes: &[u8]) -> Option<Object> {
    if bytes.is_empty() {
        return Some(Object::default());
    }
    let mut from = begin(bytes)?;
    let read = Object {
        latest: minute(&mut from)?,
        epoch: Epoch(from.number()?),
        forward: visitor(&mut from)?,
        told: flag(&mut from)?,
        entries: entries(&mut from)?,
        full_until: minute(&mut from)?,
    };
    from.is_empty().then_some(read)
}

/// A call, and whose tenant's object it goes to.
#[must_use]
pub fn encode_call(tenant: &TenantId, call: &Call) -> Vec<u8> {
    let mut to = Vec::new();
    put(&mut to, FORM);
    put_row(&mut to, tenant.to_string().as_bytes());
    to.extend(call.to.as_bytes());
    put(&mut to, u64::from(call.links.is_some()));
    if let Some(Links { epoch, members }) = &call.links {
        put(&mut to, epoch.0);
        put(&mut to, members.len() as u64);
        members.iter().for_each(|member| to.extend(member.as_bytes()));
    }
    put_entries(&mut to, &call.entries);
    match &call.ask {
        Ask::Confirm(insertion) => {
            put(&mut to, 0);
            to.extend(insertion.0);
        }
        Ask::Claim(claim) => {
            put(&mut to, 1);
            put_claim(&mut to, claim);
        }
    }
    to
}

/// Reads a call.
#[must_use]
pub fn decode_call(bytes: &[u8]) -> Option<(TenantId, Call)> {
    let mut from = begin(bytes)?;
    let tenant = std::str::from_utf8(from.row()?).ok()?.parse().ok()?;
    let to = from.visitor()?;
    let links = if flag(&mut from)? {
        let epoch = Epoch(from.number()?);
        Some(Links { epoch, members: list(&mut from, limits::STRICT_MEMBERS, Packed::visitor)? })
    } else {
        None
    };
    let entries = entries(&mut from)?;
    let ask = if flag(&mut from)? { Ask::Claim(claim(&mut from)?) } else { Ask::Confirm(insertion(&mut from)?) };
    from.is_empty().then_some((tenant, Call { to, links, entries, ask }))
}

/// An answer.
#[must_use]
pub fn encode_answer(answer: &Answer) -> Vec<u8> {
    let mut to = Vec::new();
    put(&mut to, FORM);
    put_entries(&mut to, &answer.granted);
    to
}

/// Reads an answer.
#[must_use]
pub fn decode_answer(bytes: &[u8]) -> Option<Answer> {
    let mut from = begin(bytes)?;
    let answer = Answer { granted: entries(&mut from)? };
    from.is_empty().then_some(answer)
}

fn begin(bytes: &[u8]) -> Option<Packed<'_>> {
    let mut from = Packed(bytes);
    (from.number()? == FORM).then_some(from)
}

fn put_claim(to: &mut Vec<u8>, Claim { candidates, wanted, seen }: &Claim) {
    put(to, candidates.len() as u64);
    for Candidate { entity, caps } in candidates {
        put_entity(to, *entity);
        put(to, caps.len() as u64);
        for StrictCap { level, limit, window } in caps {
            put(to, *level as u64);
            put(to, (*limit).into());
            put(to, window.interval.into());
            put(to, window.unit as u64);
        }
    }
    put(to, wanted.len() as u64);
    for Wanted { insertion, choices } in wanted {
        to.extend(insertion.0);
        put(to, choices.len() as u64);
        choices.iter().for_each(|choice| put(to, *choice as u64));
    }
    put(to, seen.len() as u64);
    for Seen { insertion, entity, minute } in seen {
        to.extend(insertion.0);
        put_entity(to, *entity);
        put(to, minute.0.into());
    }
}

fn claim(from: &mut Packed<'_>) -> Option<Claim> {
    let candidates = list(from, limits::STRICT_CANDIDATES, |from| {
        let entity = entity(from)?;
        let caps = list(from, limits::CAPS * Level::ALL.len(), |from| {
            let level = *Level::ALL.get(place(from)?)?;
            let (limit, interval) = (code(from)?, code(from)?);
            Some(StrictCap { level, limit, window: Window { interval, unit: *Unit::ALL.get(place(from)?)? } })
        })?;
        Some(Candidate { entity, caps })
    })?;
    let wanted = list(from, limits::PLACEMENTS, |from| {
        let insertion = insertion(from)?;
        Some(Wanted { insertion, choices: list(from, limits::STRICT_CANDIDATES, place)? })
    })?;
    let seen = list(from, limits::STRICT_SEEN, |from| {
        Some(Seen { insertion: insertion(from)?, entity: entity(from)?, minute: minute(from)? })
    })?;
    Some(Claim { candidates, wanted, seen })
}

fn put_entries(to: &mut Vec<u8>, entries: &Entries) {
    put(to, entries.len() as u64);
    for (insertion, Entry { entity, minute, confirmed, keep }) in entries {
        to.extend(insertion.0);
        put_entity(to, *entity);
        put(to, minute.0.into());
        put(to, u64::from(*confirmed));
        put(to, (*keep).into());
    }
}

fn entries(from: &mut Packed<'_>) -> Option<Entries> {
    // Those of every object on the way to the one that decides: a person's, each of which forwards once at most.
    let entries = list(from, limits::STRICT_ENTRIES * limits::STRICT_MEMBERS, |from| {
        let insertion = insertion(from)?;
        let (entity, minute) = (entity(from)?, minute(from)?);
        Some((insertion, Entry { entity, minute, confirmed: flag(from)?, keep: code(from)? }))
    })?;
    Some(entries.into_iter().collect())
}

fn put_entity(to: &mut Vec<u8>, Entity { ad, ad_group, campaign, advertiser }: Entity) {
    [ad, ad_group, campaign, advertiser].into_iter().for_each(|code| put(to, code.into()));
}

fn entity(from: &mut Packed<'_>) -> Option<Entity> {
    Some(Entity { ad: code(from)?, ad_group: code(from)?, campaign: code(from)?, advertiser: code(from)? })
}

fn put_visitor(to: &mut Vec<u8>, visitor: Option<VisitorId>) {
    put(to, u64::from(visitor.is_some()));
    to.extend(visitor.iter().flat_map(VisitorId::as_bytes));
}

fn visitor(from: &mut Packed<'_>) -> Option<Option<VisitorId>> {
    if flag(from)? { from.visitor().map(Some) } else { Some(None) }
}

fn list<'a, T>(from: &mut Packed<'a>, most: usize, read: impl Fn(&mut Packed<'a>) -> Option<T>) -> Option<Vec<T>> {
    (0..from.count(most)?).map(|_| read(from)).collect()
}

fn insertion(from: &mut Packed<'_>) -> Option<InsertionHash> {
    Some(InsertionHash(from.take(6)?.try_into().ok()?))
}

fn code(from: &mut Packed<'_>) -> Option<u32> {
    u32::try_from(from.number()?).ok()
}

fn minute(from: &mut Packed<'_>) -> Option<Minute> {
    code(from).map(Minute)
}

fn place(from: &mut Packed<'_>) -> Option<usize> {
    from.count(limits::STRICT_CANDIDATES)
}

fn flag(from: &mut Packed<'_>) -> Option<bool> {
    from.count(1).map(|n| n == 1)
}
