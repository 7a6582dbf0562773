//! Durable Objects: the calls that a request makes, and the handling of a call in an object. Each object exists once in
//! the world.

pub(crate) mod object_call;
pub(crate) mod offers;
pub(crate) mod strict_caps;
