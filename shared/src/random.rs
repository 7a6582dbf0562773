//! Random bits as an argument: a seed from the platform, drawn out by SHA-256 in counter mode.

use sha2::{Digest, Sha256};

/// A supply of random bits from one 32-byte seed. The same seed gives the same draws.
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
    /// A supply from a seed that nobody else knows.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, draws: 0 }
    }

    /// The next `N` bytes; `N` is 32 at most, bytes beyond are zero.
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
