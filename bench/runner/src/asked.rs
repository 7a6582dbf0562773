//! A counting question, its candidates, and a naive reference answer.

use causeway_shared::facts::actions::{ActionCounter, ActionList, ActionQuestion, AdEntity, AdLevel, Counts};

pub(crate) struct Asked {
    pub(crate) candidates: Vec<AdEntity>,
    pub(crate) question: ActionQuestion<'static>,
}

impl Asked {
    pub(crate) fn counter(&self) -> ActionCounter {
        ActionCounter::new(self.candidates.iter().copied())
    }

    /// Counts the unpacked actions in loops; all view types count.
    pub(crate) fn naive(&self, actions: &ActionList) -> Vec<Counts> {
        let ActionQuestion { action_types, from, to, .. } = self.question;
        let held: Vec<AdEntity> = actions
            .iter()
            .filter(|action| action_types.contains(&action.action_type) && (from..to).contains(&action.minute))
            .map(|action| action.entity)
            .collect();
        let counts = |entity: &AdEntity| {
            AdLevel::ALL.map(|level| held.iter().filter(|of| of.at(level) == entity.at(level)).count() as u32)
        };
        self.candidates.iter().map(counts).collect()
    }
}
