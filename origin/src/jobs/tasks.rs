//! One file for each job.

pub mod deliver;
pub mod refresh;
pub mod retention;
pub mod scrub;
