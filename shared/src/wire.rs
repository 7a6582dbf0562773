//! Versioned forms of all data that crosses a wire, a cookie or a release: CBOR (RFC 8949) by ciborium, in types with
//! serde derives. Domain types have no form. Each form is a type here, with conversions to and from the domain type,
//! and golden bytes in the tests keep it stable.
//!
//! Rules of all forms:
//! - A form is a map. Its keys are texts of one letter; the first is `f`, the number of the form. A reader refuses an
//!   unknown number as [`WireError::UnknownForm`].
//! - A reader skips unknown keys, so that an edge one release older or newer than the origin works. The exception is
//!   data that restricts the audience of an ad: a catalogue's document and its filters refuse unknown keys.
//! - A field that is empty, zero or absent has no key, where the form says so.
//! - Ids and hashes are byte strings. There are no tuples, since a tuple cannot grow; no tags and no indefinite
//!   lengths.
//! - Bytes are checked before ciborium reads them (`cbor`): their length, the nesting, the number of items, and that
//!   each declared length is present. Ranges and bounds of values are checked afterwards, in the conversion to the
//!   domain type.
//! - Columns with dozens or thousands of numbers, in a snapshot, a cookie or a model, are byte strings packed as in
//!   [`crate::base::packed`]; their form names them.
//!
//! Reserved keys: in a fact, `n` for the position of a write in its call, and `w` for the owner of a waiting event (the
//! signed id of its visitor); in a tracked event, `o` for the order id of a purchase; in every form, `z` for a checksum
//! of the stored bytes.

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
pub mod offer_codes;
pub mod outbox_drain;
mod parts;
pub mod profile;
pub mod strict_caps;
pub mod sync;

pub use error::WireError;
