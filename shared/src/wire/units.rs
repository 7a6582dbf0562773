//! Forms of limited offers: a call of an object and its answer, packed, a form's number first; and what an object stores,
//! as text, a row a key: `stock` with how many it has given and up to which limit no object has any left, and a visitor
//! with the number and the holder of its person's unit, or `asked`.

use crate::ids::VisitorId;
use crate::limits;
use crate::packed::{Packed, put, put_row};
use crate::units::{Call, Given, RANGES, Row, Rows, Stock, Writes};

const FORM: u64 = 1;
const STOCK: &str = "stock";
const ASKED: &str = "asked";

/// A call.
#[must_use]
pub fn encode_call(call: &Call) -> Vec<u8> {
    let Call { tenant, campaign, limit, range, asked, again, own, members } = call;
    let mut to = Vec::new();
    put(&mut to, FORM);
    put_row(&mut to, tenant.as_str().as_bytes());
    let numbers = [*campaign, *limit, u32::from(*range), u32::from(*asked), u32::from(*again)];
    numbers.into_iter().for_each(|number| put(&mut to, number.into()));
    to.extend(own.as_bytes());
    put(&mut to, members.len() as u64);
    members.iter().for_each(|member| to.extend(member.as_bytes()));
    to
}

/// Reads a call.
#[must_use]
pub fn decode_call(bytes: &[u8]) -> Option<Call> {
    let mut from = begin(bytes)?;
    let tenant = std::str::from_utf8(from.row()?).ok()?.parse().ok()?;
    let (campaign, limit) = (code(&mut from)?, code(&mut from)?);
    let (range, asked) = (range(&mut from)?, range(&mut from)?);
    let again = from.count(1)? == 1;
    let own = from.visitor()?;
    let members = (0..from.count(limits::STRICT_MEMBERS)?).map(|_| from.visitor()).collect::<Option<_>>()?;
    from.is_empty().then_some(Call { tenant, campaign, limit, range, asked, again, own, members })
}

/// An answer: a unit, or none.
#[must_use]
pub fn encode_answer(answer: Option<Given>) -> Vec<u8> {
    let mut to = Vec::new();
    put(&mut to, FORM);
    if let Some(Given { number, holder }) = answer {
        put(&mut to, number.into());
        to.extend(holder.as_bytes());
    }
    to
}

/// Reads an answer.
#[must_use]
pub fn decode_answer(bytes: &[u8]) -> Option<Option<Given>> {
    let mut from = begin(bytes)?;
    if from.is_empty() {
        return Some(None);
    }
    let given = Given { number: code(&mut from)?, holder: from.visitor()? };
    from.is_empty().then_some(Some(given))
}

/// The keys of the rows that a call needs: the stock's, then its members'.
#[must_use]
pub fn keys(call: &Call) -> Vec<String> {
    [STOCK.to_owned()].into_iter().chain(call.members.iter().map(ToString::to_string)).collect()
}

/// Reads the rows of these keys, a line each, empty for one that is not there; `None` when one is not of its form.
#[must_use]
pub fn decode_rows(call: &Call, lines: &[u8]) -> Option<(Stock, Rows)> {
    let mut lines = std::str::from_utf8(lines).ok()?.split('\n');
    let stock = match lines.next().unwrap_or_default() {
        "" => Stock::default(),
        text => {
            let (given, empty) = text.split_once(' ')?;
            Stock { given: given.parse().ok()?, empty: empty.parse().ok()? }
        }
    };
    let there = call.members.iter().zip(lines).filter(|(_, text)| !text.is_empty());
    let rows = there.map(|(member, text)| Some((*member, row(text)?))).collect::<Option<_>>()?;
    Some((stock, rows))
}

fn row(text: &str) -> Option<Row> {
    if text == ASKED {
        return Some(Row::Asked);
    }
    let (number, holder) = text.split_once(' ')?;
    Some(Row::Given(Given { number: number.parse().ok()?, holder: holder.parse().ok()? }))
}

/// The rows to write: a key and its text a line, no text for a row to drop.
#[must_use]
pub fn encode_rows(Stock { given, empty }: Stock, writes: &Writes) -> String {
    let text = |(visitor, row): (&VisitorId, &Option<Row>)| match row {
        Some(Row::Given(Given { number, holder })) => format!("\n{visitor} {number} {holder}"),
        Some(Row::Asked) => format!("\n{visitor} {ASKED}"),
        None => format!("\n{visitor} "),
    };
    format!("{STOCK} {given} {empty}") + &writes.iter().map(text).collect::<String>()
}

fn begin(bytes: &[u8]) -> Option<Packed<'_>> {
    let mut from = Packed(bytes);
    (from.number()? == FORM).then_some(from)
}

fn code(from: &mut Packed<'_>) -> Option<u32> {
    u32::try_from(from.number()?).ok()
}

fn range(from: &mut Packed<'_>) -> Option<u8> {
    u8::try_from(from.count(usize::from(RANGES) - 1)?).ok()
}
