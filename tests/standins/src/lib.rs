//! Stand-ins for services of the platform. Each listens on a free port of the loopback address, keeps the documented
//! limits, and fails on demand. Its threads end with the process.

pub mod http;
pub mod kv_api;
