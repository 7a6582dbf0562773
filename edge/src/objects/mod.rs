//! Durable Objects: what a request asks them, and what an object does with a call. Each object exists once in the
//! world.

pub(crate) mod object_call;
pub(crate) mod offers;
pub(crate) mod strict_caps;
