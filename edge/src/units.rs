//! Limited offers at the edge: which units a request's person may see, what the object of its bucket range is asked, and
//! what such an object does with a call.

use std::collections::BTreeMap;

use causeway_shared::catalogue::Limited;
use causeway_shared::decision::Holding;
use causeway_shared::identity::Recognised;
use causeway_shared::ids::TenantId;
use causeway_shared::limits;
use causeway_shared::units::{Call, Given, Recipients, Step, Stock, Writes};
use causeway_shared::wire::units as wire;

use crate::answer::{Head, Outcome};
use crate::hop::{self, Class, Hop};
use crate::placing;
use crate::visit::Visit;

/// The campaigns with only so many recipients of which a person has a unit, or may get one. Who may have one unread gets none.
pub(crate) fn holdings(visit: &Visit, who: &Recognised) -> BTreeMap<u32, Holding> {
    let limited = &visit.catalogue.compiled.limited;
    if limited.is_empty() || !visit.is_counted() {
        return BTreeMap::new();
    }
    let counted = who.counted();
    let (held, random) = (counted.units(), placing::random_of(&counted));
    let holding = |of: &Limited| {
        if let Some(unit) = held.get(of.campaign) {
            return Some((of.campaign, Holding::Has(unit.number)));
        }
        let open = !visit.catalogue.steering.given_out.contains(&of.campaign);
        let drawn = || of.recipients.range_of(&random, &of.id).is_some();
        (open && !visit.missed && drawn()).then_some((of.campaign, Holding::May))
    };
    limited.iter().filter_map(holding).collect()
}

/// Limited offers of which somebody was told that no unit is left, by tenant, campaign and how many there were.
#[derive(Debug, Default)]
pub(crate) struct Empty(Vec<(TenantId, u32, u32)>);

impl Empty {
    pub(crate) fn keep(&mut self, visit: &Visit, campaign: u32) {
        if self.holds(visit, campaign) {
            return;
        }
        if self.0.len() >= limits::EMPTY_OFFERS {
            self.0.clear();
        }
        self.0.extend(Self::named(visit, campaign));
    }

    pub(crate) fn holds(&self, visit: &Visit, campaign: u32) -> bool {
        !self.0.is_empty() && Self::named(visit, campaign).is_some_and(|named| self.0.contains(&named))
    }

    fn named(visit: &Visit, campaign: u32) -> Option<(TenantId, u32, u32)> {
        let of = visit.catalogue.compiled.limited.iter().find(|of| of.campaign == campaign)?;
        Some((visit.site.id.clone(), campaign, of.recipients.limit))
    }
}

/// Asks for a unit of a campaign.
pub(crate) fn ask(visit: &Visit, who: &Recognised, campaign: u32) -> Option<Hop> {
    let of = visit.catalogue.compiled.limited.iter().find(|of| of.campaign == campaign)?;
    let Recipients { limit, .. } = of.recipients;
    let range = of.recipients.range_of(&placing::random_of(&who.counted()), &of.id)?;
    let (tenant, own, members) = (visit.site.id.clone(), who.visitor, hop::members(who));
    Some(hop(&Call { tenant, campaign, limit, range, asked: 0, again: false, own, members }))
}

/// What an object answered: the unit or none; `None` where none answered.
pub(crate) fn given(answer: &[u8]) -> Option<Option<Given>> {
    wire::decode_answer(answer)
}

fn hop(call: &Call) -> Hop {
    let Call { tenant, campaign, range, .. } = call;
    Hop { class: Class::Units, object: format!("{tenant}:{campaign}:{range}"), call: wire::encode_call(call) }
}

/// The rows that an object is to read for a call: their keys. Status 400: the call is not of its form.
#[must_use]
pub fn unit_rows(call: &[u8]) -> Outcome {
    let Some(call) = wire::decode_call(call) else { return Outcome::empty(400) };
    Outcome { head: Head { read: wire::keys(&call), ..Head::default() }, ..Outcome::default() }
}

/// One call of an object with its rows, a line each: gives the answer, or the call to forward, and the rows to write in the
/// place of facts. Status 400 changes nothing: rows or call are not of their form.
#[must_use]
pub fn unit(rows: &[u8], call: &[u8]) -> Outcome {
    let read = wire::decode_call(call).and_then(|call| Some((wire::decode_rows(&call, rows)?, call)));
    let Some(((mut stock, rows), call)) = read else { return Outcome::empty(400) };
    let (step, writes) = stock.call(&rows, &call);
    match step {
        Step::Answer(given) => answered(stock, &writes, wire::encode_answer(given)),
        Step::Forward(call) => {
            let Hop { object, call, class } = hop(&call);
            let head = Head { hop: Some(object), class, ..Head::default() };
            Outcome { head, body: call, facts: wire::encode_rows(stock, &writes).into() }
        }
    }
}

/// Gives an object the answer to the call that it forwarded, with its rows.
#[must_use]
pub fn unit_passed(rows: &[u8], forwarded: &[u8], answer: &[u8]) -> Outcome {
    let read = || {
        let call = wire::decode_call(forwarded)?;
        Some((wire::decode_rows(&call, rows)?.0, call, wire::decode_answer(answer)?))
    };
    let Some((mut stock, call, given)) = read() else { return Outcome::empty(400) };
    let writes = stock.passed(&call, given);
    answered(stock, &writes, answer.to_vec())
}

fn answered(stock: Stock, writes: &Writes, answer: Vec<u8>) -> Outcome {
    let head = Head { status: 200, ..Head::default() };
    Outcome { head, body: answer, facts: wire::encode_rows(stock, writes).into() }
}
