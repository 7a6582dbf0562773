//! A call of an object on its way out: objects are the platform's, each there once in the world.

use causeway_shared::identity::Recognised;
use causeway_shared::ids::VisitorId;
use causeway_shared::limits;
use serde::Serialize;

/// Which objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Class {
    /// Of strict caps, one a visitor.
    #[default]
    Persons,
    /// Of limited offers, one a campaign and range.
    Units,
}

impl Class {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The members of a request's person that an object is told of, in order: the smallest, by which all its browsers find the
/// same object, is among them, and its own visitor.
pub(crate) fn members(who: &Recognised) -> Vec<VisitorId> {
    some(who.counted().members(), who.visitor)
}

fn some(members: &[VisitorId], own: VisitorId) -> Vec<VisitorId> {
    let others = members.iter().copied().filter(|member| *member != own);
    let mut some: Vec<VisitorId> = others.take(limits::STRICT_MEMBERS - 1).collect();
    some.insert(some.partition_point(|member| *member < own), own);
    some
}

/// A call of another object: its name and the bytes.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) class: Class,
    pub(crate) object: String,
    pub(crate) call: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_members_the_smallest_and_who_asks_are_told_in_order() {
        let all: Vec<VisitorId> = (0..80).map(|n| VisitorId::mint(n, [0; 10])).collect();
        for own in [0, 5, 63, 64, 79] {
            let own = all.iter().copied().nth(own).unwrap_or(VisitorId::NOBODY);
            let some = some(&all, own);
            assert_eq!((some.len(), some.first()), (limits::STRICT_MEMBERS, all.first()));
            assert!(some.is_sorted() && some.contains(&own));
        }
        let few: Vec<VisitorId> = all.into_iter().take(3).collect();
        assert!(few.iter().all(|own| some(&few, *own) == few));
    }
}
