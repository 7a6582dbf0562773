//! What the benches count and filter: data made from seeds, so that native code and WebAssembly have the same, and the
//! work on it in loops of its own, so that a clock outside sees many times at once. Not part of the product.

pub mod counting;
pub mod decide;
pub mod filters;
pub mod segments;

/// SplitMix64's mixing (Steele et al. 2014).
#[must_use]
pub fn scramble(n: u64) -> u64 {
    let z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
