//! Buckets: a number for each person and purpose, used to sample people, to assign arms and to choose recipients. Each
//! purpose has an independent value, so that one never biases another. All values derive from the person's random
//! bytes, which are drawn once.

use sha2::{Digest as _, Sha256};

use crate::base::ids::VisitorId;

/// Number of buckets for each purpose.
pub const BUCKETS: u16 = 10_000;

/// Random bytes of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersonRandom(pub [u8; 16]);

/// Purpose of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BucketPurpose<'a> {
    /// Samples that estimate audience sizes; used for nothing else.
    Sampling,
    /// Arms of an experiment, by the experiment's id.
    Experiment(&'a str),
    /// Recipients of a campaign, by the campaign's id.
    Send(&'a str),
}

impl PersonRandom {
    /// Replacement at the edge, before a visitor's first snapshot, for the person's random bytes: the visitor's id, of
    /// which 74 bits are random. The person's bytes may lead to other buckets later, so that a decision which must not
    /// change is stored as a fact of the visitor, as exposures are.
    #[must_use]
    pub fn of_visitor(visitor: VisitorId) -> Self {
        Self(*visitor.as_bytes())
    }

    /// The person's bucket for a purpose: 0 to 9999, uniform up to one part in 10^15.
    #[must_use]
    pub fn bucket(&self, purpose: BucketPurpose<'_>) -> u16 {
        let (kind, name) = match purpose {
            BucketPurpose::Sampling => (0u8, ""),
            BucketPurpose::Experiment(name) => (1, name),
            BucketPurpose::Send(name) => (2, name),
        };
        let mut hash = Sha256::new();
        hash.update(b"causeway bucket\0");
        hash.update(self.0);
        hash.update([kind]);
        hash.update(name.as_bytes());
        let bytes = hash.finalize();
        let number = bytes.first_chunk().map_or(0, |eight| u64::from_be_bytes(*eight));
        u16::try_from(number % u64::from(BUCKETS)).unwrap_or_default()
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    fn person(n: u64) -> PersonRandom {
        let mut bytes = [7; 16];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        PersonRandom(bytes)
    }

    /// Pearson's χ² statistic against equal shares.
    fn chi_square(counts: &[u64]) -> f64 {
        let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum()
    }

    #[test]
    fn every_bucket_is_equally_likely() {
        let mut counts = vec![0u64; usize::from(BUCKETS)];
        (0..400_000).for_each(|n| counts[usize::from(person(n).bucket(BucketPurpose::Sampling))] += 1);
        // 9,999 degrees of freedom: six standard deviations on either side are allowed.
        let statistic = chi_square(&counts);
        assert!((statistic - 9_999.0).abs() < 6.0 * (2.0 * 9_999.0f64).sqrt(), "{statistic}");
    }

    #[test]
    fn bucket_purposes_are_independent_of_each_other() {
        let purposes = [
            BucketPurpose::Sampling,
            BucketPurpose::Experiment("e-1"),
            BucketPurpose::Experiment("e-2"),
            BucketPurpose::Send("e-1"),
        ];
        for (i, a) in purposes.iter().enumerate() {
            for b in &purposes[..i] {
                // A table of ten by ten has 81 degrees of freedom; one in 10^9 exceeds 175.
                let mut table = vec![0u64; 100];
                for n in 0..50_000 {
                    let tenth = |purpose: &BucketPurpose<'_>| usize::from(person(n).bucket(*purpose) / 1_000);
                    table[tenth(a) * 10 + tenth(b)] += 1;
                }
                assert!(chi_square(&table) < 175.0 + 18.0, "{a:?} {b:?}");
            }
        }
    }
}
