//! One request between its reads: what is known so far, and what it reads.

pub(crate) mod extra_reads;
pub(crate) mod request_state;
