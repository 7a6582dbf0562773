//! The SQL statements of the store, of the log and of the journal of erasures, one module for each table.
//!
//! A statement stands with the table that it writes; a SELECT stands with the first table of its FROM. A constant
//! begins with the name of its table and says what the statement does. Values of columns are explained in
//! `origin/sql/0001_store.sql`.

pub(crate) mod actions;
pub(crate) mod activity_histograms;
pub(crate) mod alternates;
pub(crate) mod anonymous_facts;
pub(crate) mod attribute_names;
pub(crate) mod audience_members;
pub(crate) mod audiences;
pub(crate) mod audit;
pub(crate) mod cancellations;
pub(crate) mod catalogue_codes;
pub(crate) mod catalogue_current;
pub(crate) mod catalogues;
pub(crate) mod conversions;
pub(crate) mod cuts;
pub(crate) mod erased;
pub(crate) mod erased_ids;
pub(crate) mod erasure_keys;
pub(crate) mod erasure_requests;
pub(crate) mod erasure_sweeps;
pub(crate) mod erasures;
pub(crate) mod event_names;
pub(crate) mod evidence;
pub(crate) mod experiment_delays;
pub(crate) mod experiment_hours;
pub(crate) mod experiment_people;
pub(crate) mod exposures;
pub(crate) mod fact_ids;
pub(crate) mod fact_ids_over;
pub(crate) mod identity;
pub(crate) mod imports;
pub(crate) mod journal_erasures;
pub(crate) mod log;
pub(crate) mod lookups;
pub(crate) mod meta;
pub(crate) mod models;
pub(crate) mod names_brought;
pub(crate) mod offer_codes;
pub(crate) mod offer_codes_given;
pub(crate) mod orders_paid;
pub(crate) mod outbox;
pub(crate) mod people;
pub(crate) mod people_changed;
pub(crate) mod purchases;
pub(crate) mod purchases_unpaid;
pub(crate) mod quarantined_facts;
pub(crate) mod retired_keys;
pub(crate) mod runs;
pub(crate) mod send_people;
pub(crate) mod sends;
pub(crate) mod spend;
pub(crate) mod sqlite_schema;
pub(crate) mod standing;
pub(crate) mod state;
pub(crate) mod sweeps;
pub(crate) mod tenants;
pub(crate) mod tokens;
pub(crate) mod traffic_allocation;
pub(crate) mod unreadable;
pub(crate) mod verifications;
pub(crate) mod visitors;
