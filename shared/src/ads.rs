//! The catalogue, and the decision which ad each placement shows.

pub mod allocation;
pub mod budget;
pub mod catalogue;
pub mod decision;
pub mod model;
pub mod strict_caps;
