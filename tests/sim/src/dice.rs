//! The only source of chance in a world: one stream of numbers from its seed (SplitMix64, Steele, Lea and Flood 2014).

use causeway_shared::base::random;

/// A seeded random number generator.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Starts the stream of a seed; the same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Splits off an independent generator for one part of the world; its draws do not affect other parts.
    #[must_use]
    pub fn apart(&mut self) -> Self {
        Self(self.throw())
    }

    /// A random number over the whole range of `u64`.
    pub fn throw(&mut self) -> u64 {
        random::next(&mut self.0)
    }

    /// A number from 0 to `n - 1`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.throw() % n }
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// A random index into a list of `len` entries; 0 if the list is empty.
    pub fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// True with a probability of `per_mille` / 1000.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// A random entry of a list; `None` if the list is empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        let index = self.place(list.len());
        list.get(index)
    }

    /// `N` random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.throw().to_le_bytes();
            chunk.iter_mut().zip(drawn).for_each(|(to, from)| *to = from);
        }
        bytes
    }
}
