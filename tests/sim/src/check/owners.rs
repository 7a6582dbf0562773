//! An event counts for the visitor that its token names, at whatever time the tag sends it and whichever visitor the
//! browser has by then.

use causeway_edge::HttpAnswer;
use causeway_shared::facts::fact::FactKind;

use crate::edge::Call;
use crate::sync::facts_of_answer;

/// If one token names the visitor of all events in a call, all facts of the call belong to that visitor. A withdrawal
/// is excepted: it concerns the cookie's visitor and counts nothing.
pub fn emitted(call: &Call, answer: &HttpAnswer) -> Vec<String> {
    let Some((owner, _)) = &call.asked.owner else { return Vec::new() };
    let facts = facts_of_answer(answer);
    let others = facts.iter().filter(|fact| fact.visitor != *owner && fact.what != FactKind::Withdrawal);
    others.map(|fact| format!("an event of {owner:?} counts for {:?}: {:?}", fact.visitor, fact.what)).collect()
}
