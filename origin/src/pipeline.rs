//! The list of steps of one transaction, and the two threads that run it.

pub mod bulk_publisher;
mod campaign_step;
pub mod commit;
pub mod mend;
pub mod replay;
pub mod take_up;
pub mod writer;
