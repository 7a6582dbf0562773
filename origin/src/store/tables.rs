//! The SQL statements of the store, one module for each table.
//!
//! A statement stands with the table that it writes; a SELECT stands with the first table of its FROM. A constant begins
//! with the name of its table and says what the statement does. Values of columns are explained in
//! `origin/sql/0001_store.sql`.

pub(crate) mod asked;
pub(crate) mod audience_members;
pub(crate) mod audiences;
pub(crate) mod audit;
pub(crate) mod catalogue_codes;
pub(crate) mod catalogue_current;
pub(crate) mod catalogues;
pub(crate) mod erased;
pub(crate) mod erased_ids;
pub(crate) mod erasure_keys;
pub(crate) mod erasure_sweeps;
pub(crate) mod erasures;
pub(crate) mod experiment_delays;
pub(crate) mod experiment_hours;
pub(crate) mod experiment_people;
pub(crate) mod identity;
pub(crate) mod imports;
pub(crate) mod journal_erasures;
pub(crate) mod log;
pub(crate) mod models;
pub(crate) mod outbox;
pub(crate) mod retired_keys;
pub(crate) mod rhythms;
pub(crate) mod runs;
pub(crate) mod send_people;
pub(crate) mod sends;
pub(crate) mod spend;
pub(crate) mod standing;
pub(crate) mod state;
pub(crate) mod steering;
pub(crate) mod sweeps;
pub(crate) mod tokens;
pub(crate) mod verifications;
