//! One request between its reads: its known data, and the keys that it reads.

pub(crate) mod extra_reads;
pub(crate) mod request_state;
