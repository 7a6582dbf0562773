//! A call of a Durable Object, and the step that an object takes after a call.

use causeway_shared::base::ids::VisitorId;
use causeway_shared::base::limits;
use causeway_shared::identity::RecognisedVisitor;

/// The class of an object, as `wrangler.toml` binds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectClass {
    /// Strict caps: one object per visitor.
    StrictCaps,
    /// Limited offers: one object per campaign and range.
    Offers,
}

impl ObjectClass {
    /// The name of the binding.
    #[must_use]
    pub fn binding(self) -> &'static str {
        match self {
            Self::StrictCaps => "STRICT_CAPS",
            Self::Offers => "OFFERS",
        }
    }
}

/// A call of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectCall {
    /// The object's class.
    pub class: ObjectClass,
    /// The object's name within its class.
    pub object: String,
    /// The request's bytes.
    pub body: Vec<u8>,
}

/// The step of an object after a call. The object stores first, so that its answer or forwarded call is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectStep<S> {
    /// The state to store.
    pub store: S,
    /// The action after that.
    pub next: ObjectNext,
}

/// The action of an object after it has stored its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectNext {
    /// Answers the caller.
    Answer(Vec<u8>),
    /// Forwards a call to another object, and then handles that object's answer.
    Forward(ObjectCall),
}

/// Bytes that cannot be decoded: the call, the forwarded call, its answer, or the object's stored state. Nothing is
/// stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the call or the stored state of the object cannot be decoded")]
pub struct InvalidObjectCall;

/// The visitors of a person that an object is given, ascending, at most [`limits::STRICT_MEMBERS`]. They include the
/// request's own visitor and the smallest one, by which all browsers of the person find the same object.
pub(crate) fn select_members(recognised: &RecognisedVisitor) -> Vec<VisitorId> {
    select_smallest(recognised.counted().members(), recognised.visitor)
}

fn select_smallest(members: &[VisitorId], own: VisitorId) -> Vec<VisitorId> {
    let others = members.iter().copied().filter(|member| *member != own);
    let mut selected: Vec<VisitorId> = others.take(limits::STRICT_MEMBERS - 1).collect();
    selected.insert(selected.partition_point(|member| *member < own), own);
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_members_the_smallest_and_the_own_are_selected_in_order() {
        let all: Vec<VisitorId> = (0..80).map(|n| VisitorId::mint(n, [0; 10])).collect();
        for own in [0, 5, 63, 64, 79] {
            let own = all.iter().copied().nth(own).unwrap_or(VisitorId::ANONYMOUS);
            let some = select_smallest(&all, own);
            assert_eq!((some.len(), some.first()), (limits::STRICT_MEMBERS, all.first()));
            assert!(some.is_sorted() && some.contains(&own));
        }
        let few: Vec<VisitorId> = all.into_iter().take(3).collect();
        assert!(few.iter().all(|own| select_smallest(&few, *own) == few));
    }
}
