//! Catalogues, budgets, traffic allocation, experiments, limited offers and the model.

pub mod catalogue;
pub mod experiment;
pub mod offers;
pub mod rules;
pub mod spend;
pub mod steering;
pub mod train;
