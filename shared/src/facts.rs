//! Facts: one immutable observation each, and the sets of facts that a profile packs.

pub mod actions;
pub mod attributes;
pub mod events;
pub mod evidence;
pub mod exposures;
pub mod fact;
pub mod offer_codes;
pub mod orders;
pub mod segments;
