//! Catalogues, budgets, traffic allocation, experiments, limited offers and the model.

pub mod allocation;
pub mod catalogue;
pub mod experiment;
pub mod offers;
pub mod rules;
pub mod spend;
pub mod train;
