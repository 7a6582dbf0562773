//! The edge worker's module. The shell (`edge/shell/`) gathers what a request brings, does what the module
//! says – one KV read, perhaps a second, a queue message, an answer – and nothing else; every decision is made
//! here, by functions from bytes to bytes.
//!
//! A crossing between JavaScript and WebAssembly costs more than most of what is done on either side, so a
//! request crosses once, and once more for each KV read it needs.
#![warn(missing_docs)]
#![warn(clippy::indexing_slicing)]

mod answer;
mod attributes;
mod catalogue;
mod claims;
mod client;
mod cookies;
mod cors;
mod decide;
mod engine;
mod events;
mod hop;
mod malformed;
mod me;
pub mod module;
mod permission;
mod pixel;
mod placing;
mod request;
mod route;
mod strict;
mod sync;
mod units;
mod visit;
mod waiting;

pub use answer::{Head, Limit, Outcome};
pub use engine::{ConfigureError, Engine};
pub use hop::Class;
pub use strict::{object, passed};
pub use sync::sync_response;
pub use units::{unit, unit_passed, unit_rows};
