//! Versioned forms of everything that crosses a wire, a cookie or a release: CBOR (RFC 8949) by ciborium, in types that
//! serde derives. Domain types have no form of their own: each form is a type here, converted to and from the domain type,
//! and golden bytes in the tests keep it as it is.
//!
//! Rules of all forms:
//! - A form is a map. Keys are texts of one letter; the first is `f`, the number of the form. A reader refuses a number
//!   that it does not know as [`WireError::UnknownForm`].
//! - A reader skips keys that it does not know, so that an edge one release older or newer than the origin works. What
//!   limits who may see an ad is the exception: a catalogue's document and its filters refuse unknown keys.
//! - A field that is empty, zero or absent has no key, where the form says so.
//! - Ids and hashes are byte strings. There are no tuples, since a tuple cannot grow; no tags and no indefinite lengths.
//! - Bytes are checked before ciborium reads them (`cbor`): their length, the nesting, the number of items, and that each
//!   declared length is there. Ranges and bounds of values are checked after it, in the conversion to the domain type.
//! - Columns of numbers that a snapshot, a cookie or a model has dozens or thousands of are byte strings, packed as
//!   [`crate::base::packed`] describes; their form names them.
//!
//! Keys that are reserved: `n` of a fact, for the position of a write in its call; `w` of a fact, for the owner of an event
//! that waits, the signed name of the visitor that it belongs to; `o` of a tracked event, for the order id of a purchase;
//! `z` of every form, for a checksum of what is stored.

pub mod catalogue;
mod cbor;
pub mod cookies;
mod error;
pub mod facts;
pub mod filter;
pub mod flat;
pub mod kv;
pub mod kv_keys;
pub mod model;
pub mod newest_versions;
pub mod offer_slots;
pub mod outbox_drain;
mod parts;
pub mod profile;
pub mod strict_caps;
pub mod sync;

pub use error::WireError;
