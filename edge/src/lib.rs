//! The edge: the engine that answers requests, and the worker that connects it to the platform.
//!
//! Everything but the room `worker` is pure: values in, values out, so that the origin, the simulator and the tests run
//! the same code natively. The module `worker` is compiled for WebAssembly only and is the only room that knows the
//! platform.
#![warn(missing_docs)]
#![warn(clippy::indexing_slicing)]

mod cache;
mod engine;
mod http;
mod objects;
mod routes;
mod site;
mod state;
mod sync;
#[cfg(target_family = "wasm")]
pub mod worker;

pub use engine::pending::{PendingCall, PendingRead};
pub use engine::{ConfigureError, Engine, EngineStep, KvRead};
pub use http::answer::{FactsMessage, HttpAnswer};
pub use http::client::network_of;
pub use http::request::RequestTarget;
pub use http::unserved::{UnservedReason, answer_rate_limited, answer_retry, answer_unserved};
pub use objects::object_call::{InvalidObjectCall, ObjectCall, ObjectClass, ObjectNext, ObjectStep};
pub use objects::offers::{RowWrite, call_offers, offer_row_keys, receive_offers};
pub use objects::strict_caps::{call_strict_caps, receive_strict_caps};
pub use routes::WorkerPage;
pub use site::RateLimit;
pub use state::request_state::{KvValues, ReadFault};
pub use sync::{SignedSync, SyncOutcome, read_sync_response};
