//! No fact and no KV key carries an id from a request without permission. The only exception is the withdrawal, which
//! names the visitor whose permission ended. An anonymous impression is billed and names no visitor.

use causeway_edge::HttpAnswer;
use causeway_shared::base::ids::VisitorId;
use causeway_shared::facts::fact::{Fact, FactKind};

use crate::browser::Kind;
use crate::edge::Call;
use crate::sync::facts_of_answer;

/// KV keys of visitors or ids that a call without permission reads; it may read none.
pub fn reads(call: &Call, keys: &[String]) -> Vec<String> {
    let named = keys.iter().filter(|key| key.starts_with("v:") || key.starts_with("a:"));
    if call.gpc { named.map(|key| format!("a call without permission reads {key}")).collect() } else { Vec::new() }
}

/// Facts and cookies that a call without permission must not send; withdrawals and anonymous ad events are allowed.
pub fn emitted(call: &Call, answer: &HttpAnswer) -> Vec<String> {
    let facts = facts_of_answer(answer);
    let is_anonymous_action =
        |fact: &Fact| fact.visitor == VisitorId::ANONYMOUS && matches!(fact.what, FactKind::Action { .. });
    if !call.gpc || call.asked.kind == Kind::Erase {
        return Vec::new();
    }
    let wrong = facts.iter().filter(|fact| fact.what != FactKind::Withdrawal && !is_anonymous_action(fact));
    let mut seen: Vec<String> = wrong.map(|fact| format!("a call without permission sends {fact:?}")).collect();
    let sets = |(name, value): &&(&str, String)| *name == "set-cookie" && !value.contains("Max-Age=0");
    seen.extend(
        answer
            .headers
            .iter()
            .filter(sets)
            .map(|(_, value)| format!("a call without permission sets a cookie: {value}")),
    );
    seen
}
