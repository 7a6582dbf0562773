//! Records which visitors and ids are erased, and how far each erasure is.

pub mod registry;
pub mod sweep;
