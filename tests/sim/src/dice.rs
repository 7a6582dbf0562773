//! All chance of a world: one stream of numbers from its seed (SplitMix64, Steele, Lea and Flood 2014).

use causeway_shared::base::random;

/// The dice.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The same seed throws the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice of their own for one part of the world: what one part throws moves no other.
    #[must_use]
    pub fn apart(&mut self) -> Self {
        Self(self.throw())
    }

    /// Any number.
    pub fn throw(&mut self) -> u64 {
        random::next(&mut self.0)
    }

    /// A number from 0 to one under `n`; 0 for 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.throw() % n }
    }

    /// A number from `from` to `to`, both among them.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// A place in a list of so many.
    pub fn place(&mut self, many: usize) -> usize {
        usize::try_from(self.below(many as u64)).unwrap_or(0)
    }

    /// True so often in a thousand throws.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of a list, if it has any.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let place = self.place(of.len());
        of.get(place)
    }

    /// So many bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.throw().to_le_bytes();
            chunk.iter_mut().zip(drawn).for_each(|(to, from)| *to = from);
        }
        bytes
    }
}
