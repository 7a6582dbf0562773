//! What the benches count and filter: data made from seeds, so that native code and WebAssembly have the same, and the
//! work on it in loops of its own, so that a clock outside sees many times at once. Not part of the product.

pub mod counting;
pub mod decide;
pub mod filters;
pub mod segments;

use causeway_shared::base::random;

/// Bits that look random, from a number.
#[must_use]
pub fn scramble(n: u64) -> u64 {
    random::finish(n.wrapping_add(1).wrapping_mul(random::GAMMA))
}
