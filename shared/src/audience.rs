//! Audiences: what is known of the people whom a filter means, without and with looking at everyone.

pub mod estimate;
pub mod index;
pub mod send;
