//! Versioned forms of what crosses a wire or a release: CBOR (RFC 8949) arrays, each beginning with the
//! number of its form. A reader takes longer arrays than it knows and ignores the rest, so that an edge one
//! release older or newer than the origin works. Domain types do not derive these forms; they are written
//! out here, and golden bytes in the tests hold them still.

pub mod catalogue;
pub mod cookies;
pub mod facts;
pub mod filter;
pub mod flat;
pub mod kv;
pub mod model;
mod parts;
pub mod profile;
pub mod strict;
pub mod sync;
pub mod units;

pub use parts::WireError;
