//! Profiles of visitors, the view that joins the profiles of one person, and the ledger cookie.

pub mod activity;
pub mod ledger;
pub mod membership;
pub mod profile;
pub mod view;
