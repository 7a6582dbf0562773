//! An event counts for the visitor that it happened to, whenever the tag sends it: the one that its token names, whoever is
//! at the browser by then.

use causeway_edge::HttpAnswer;
use causeway_shared::facts::fact::FactKind;

use crate::edge::Call;
use crate::sync::facts_of_answer;

/// The facts of a call whose events one token names are that visitor's. A withdrawal is the cookie's, and counts nothing.
pub fn emitted(call: &Call, answer: &HttpAnswer) -> Vec<String> {
    let Some((owner, _)) = &call.asked.owner else { return Vec::new() };
    let facts = facts_of_answer(answer);
    let others = facts.iter().filter(|fact| fact.visitor != *owner && fact.what != FactKind::Withdrawal);
    others.map(|fact| format!("an event of {owner:?} counts for {:?}: {:?}", fact.visitor, fact.what)).collect()
}
