//! Data and loops of the benches. The data is generated from seeds, so that native code and WebAssembly have the same.
//! The loops are inside this crate, so that a clock outside measures many repetitions. Not part of the product.

pub mod counting;
pub mod decide;
pub mod filters;
pub mod segments;

use causeway_shared::base::random;

/// Pseudo-random bits of a number.
#[must_use]
pub fn scramble(n: u64) -> u64 {
    random::finish(n.wrapping_add(1).wrapping_mul(random::GAMMA))
}
