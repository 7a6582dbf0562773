//! No fact and no KV key carries an id from a request without permission; but for the one withdrawal, which tells whose
//! permission ended. What nobody saw is paid for, and names nobody.

use causeway_edge::HttpAnswer;
use causeway_shared::base::ids::VisitorId;
use causeway_shared::facts::fact::{Fact, FactKind};

use crate::browser::Kind;
use crate::edge::Call;
use crate::sync::facts_of_answer;

/// What a call without permission may read: nothing.
pub fn reads(call: &Call, keys: &[String]) -> Vec<String> {
    let named = keys.iter().filter(|key| key.starts_with("v:") || key.starts_with("a:"));
    if call.gpc { named.map(|key| format!("a call without permission reads {key}")).collect() } else { Vec::new() }
}

/// What it may tell: withdrawals, and ad events of nobody.
pub fn emitted(call: &Call, answer: &HttpAnswer) -> Vec<String> {
    let facts = facts_of_answer(answer);
    let nobodys = |fact: &Fact| fact.visitor == VisitorId::NOBODY && matches!(fact.what, FactKind::Action { .. });
    if !call.gpc || call.asked.kind == Kind::Erase {
        return Vec::new();
    }
    let wrong = facts.iter().filter(|fact| fact.what != FactKind::Withdrawal && !nobodys(fact));
    let mut seen: Vec<String> = wrong.map(|fact| format!("a call without permission tells {fact:?}")).collect();
    let sets = |(name, value): &&(&str, String)| *name == "set-cookie" && !value.contains("Max-Age=0");
    seen.extend(answer.headers.iter().filter(sets).map(|(_, value)| format!("without permission: {value}")));
    seen
}
