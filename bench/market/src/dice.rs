//! Pseudo-random numbers from a seed: SplitMix64 (Steele, Lea, Flood 2014).

use causeway_shared::base::random;

/// A seeded generator.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// A generator from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        random::next(&mut self.0)
    }

    /// 32 random bytes, as the seed of a request.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        for eight in seed.as_chunks_mut::<8>().0 {
            *eight = self.bits().to_be_bytes();
        }
        seed
    }

    /// A number from 0 to below 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits have room")]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A number from 0 to `most - 1`.
    pub fn below(&mut self, most: usize) -> usize {
        let most = u64::try_from(most.max(1)).unwrap_or(1);
        usize::try_from(self.bits() % most).unwrap_or_default()
    }

    /// A number by a log-normal distribution with median 1; a sum of twelve draws approximates the normal distribution.
    pub fn lognormal(&mut self, spread: f64) -> f64 {
        let normal: f64 = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        (normal * spread).exp()
    }
}
