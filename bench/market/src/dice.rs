//! What happens by chance: SplitMix64 (Steele, Lea, Flood 2014) from a seed.

use causeway_shared::base::random;

/// A seeded source of chance.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        random::next(&mut self.0)
    }

    /// A seed of 32 bytes.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        for eight in seed.as_chunks_mut::<8>().0 {
            *eight = self.bits().to_be_bytes();
        }
        seed
    }

    /// From 0 to below 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits have room")]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether something of this probability happens.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// From 0 to below a number.
    pub fn below(&mut self, most: usize) -> usize {
        let most = u64::try_from(most.max(1)).unwrap_or(1);
        usize::try_from(self.bits() % most).unwrap_or_default()
    }

    /// By a logarithmic normal distribution around 1: the sum of twelve draws is about normal.
    pub fn lognormal(&mut self, spread: f64) -> f64 {
        let normal: f64 = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        (normal * spread).exp()
    }
}
