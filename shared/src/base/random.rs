//! Random bits as an argument: a seed from the platform, expanded with SHA-256 in counter mode. In addition SplitMix64
//! (Steele, Lea, Flood 2014), for numbers that only need to look random; it must not produce anything that has to be
//! unguessable.

use sha2::{Digest, Sha256};

/// The increment of SplitMix64's state per number.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finisher: it maps similar inputs to unrelated outputs.
#[must_use]
pub fn finish(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The next number of SplitMix64; advances the state.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GAMMA);
    finish(*state)
}

/// A generator of random bits from one 32-byte seed. The same seed gives the same draws.
#[derive(Clone)]
pub struct Random {
    seed: [u8; 32],
    draws: u64,
}

impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "random after {} draws", self.draws)
    }
}

impl Random {
    /// A generator from a secret seed.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, draws: 0 }
    }

    /// The next `N` bytes. `N` is at most 32; bytes beyond that are zero.
    pub fn draw<const N: usize>(&mut self) -> [u8; N] {
        let mut hash = Sha256::new();
        hash.update(self.seed);
        hash.update(self.draws.to_be_bytes());
        self.draws += 1;
        let mut bytes = [0; N];
        for (to, from) in bytes.iter_mut().zip(hash.finalize()) {
            *to = from;
        }
        bytes
    }
}
