//! A counting question, its candidates, and the answer of a reference that is too simple to be wrong.

use causeway_shared::actions::{Actions, Counter, Counts, Entity, Level, Question};

pub(crate) struct Asked {
    pub(crate) candidates: Vec<Entity>,
    pub(crate) question: Question<'static>,
}

impl Asked {
    pub(crate) fn counter(&self) -> Counter {
        Counter::new(self.candidates.iter().copied())
    }

    /// The counts of actions as they are, in loops; all view types count.
    pub(crate) fn naive(&self, actions: &Actions) -> Vec<Counts> {
        let Question { verbs, from, to, .. } = self.question;
        let held: Vec<Entity> = actions
            .iter()
            .filter(|action| verbs.contains(&action.verb) && (from..to).contains(&action.minute))
            .map(|action| action.entity)
            .collect();
        let counts = |entity: &Entity| {
            Level::ALL.map(|level| held.iter().filter(|of| of.at(level) == entity.at(level)).count() as u32)
        };
        self.candidates.iter().map(counts).collect()
    }
}
