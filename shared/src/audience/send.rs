//! Sends: a random draw of N people from those who match a filter, and the test arm of each of them.

use crate::base::random;

/// Draws entries from a list one after the other, without repetition; each remaining entry is equally likely (the
/// shuffle of Fisher and Yates, as far as entries are taken). The list is reordered.
#[derive(Debug)]
pub struct RandomDraw<'a, T> {
    left: &'a mut [T],
    state: u64,
}

impl<'a, T> RandomDraw<'a, T> {
    /// Draws from a list; the same list, order and number give the same draws.
    pub fn new(from: &'a mut [T], random: u64) -> Self {
        Self { left: from, state: random }
    }
}

impl<T: Copy> Iterator for RandomDraw<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let index = draw_below(&mut self.state, self.left.len() as u64) as usize;
        let drawn = *self.left.get(index)?;
        let first = self.left.split_off_first_mut()?;
        // The first remaining entry moves to the position of the drawn one.
        if let Some(index) = index.checked_sub(1) {
            *self.left.get_mut(index)? = *first;
        }
        Some(drawn)
    }
}

/// A uniform number below `end` (Lemire 2019, "Fast random integer generation in an interval"); 0 if `end` is 0.
fn draw_below(state: &mut u64, end: u64) -> u64 {
    loop {
        let wide = u128::from(random::next(state)) * u128::from(end);
        // Some results have one more input than others; the surplus inputs are drawn again.
        if (wide as u64) >= end.wrapping_neg().checked_rem(end).unwrap_or(0) {
            return (wide >> 64) as u64;
        }
    }
}

/// Number of people for each arm, out of `count` in total: in proportion to the shares, rounded down, with the
/// remainder given to the arms that lost most by rounding (Hamilton's method), the first of equal ones first. All
/// numbers are 0 if all shares are 0.
#[must_use]
pub fn arm_quotas(shares: &[u32], count: u32) -> Vec<u32> {
    let whole: u64 = shares.iter().map(|share| u64::from(*share)).sum();
    let part = |share: &u32| u64::from(*share) * u64::from(count);
    let mut quotas: Vec<u32> = shares.iter().map(|share| part(share).checked_div(whole).unwrap_or(0) as u32).collect();
    let left = if whole == 0 { 0 } else { count - quotas.iter().sum::<u32>() };
    let mut by_loss: Vec<usize> = (0..shares.len()).collect();
    by_loss.sort_by_key(|arm| std::cmp::Reverse(shares.get(*arm).map_or(0, |share| part(share) % whole.max(1))));
    for arm in by_loss.into_iter().take(left as usize) {
        if let Some(quota) = quotas.get_mut(arm) {
            *quota += 1;
        }
    }
    quotas
}

/// Assigns arms to people one after the other. Each arm occurs as often as its quota, spread evenly: after any number
/// of assignments, an arm is ahead of its proportional part by less than one.
#[derive(Debug)]
pub struct ArmDealer {
    quotas: Vec<u32>,
    dealt: Vec<u32>,
    all: u64,
    so_far: u64,
}

impl ArmDealer {
    /// Dealer for the quotas of [`arm_quotas`].
    #[must_use]
    pub fn new(quotas: Vec<u32>) -> Self {
        let all = quotas.iter().map(|quota| u64::from(*quota)).sum();
        Self { dealt: vec![0; quotas.len()], quotas, all, so_far: 0 }
    }
}

impl Iterator for ArmDealer {
    type Item = usize;

    /// Of the arms that would not get ahead of their part, the next arm is the one with the earliest deadline (Baruah
    /// and others 1996, "Proportionate progress").
    fn next(&mut self) -> Option<usize> {
        self.so_far = Some(self.so_far + 1).filter(|turn| *turn <= self.all)?;
        let turn = |(arm, (quota, dealt)): (usize, (&u32, &u32))| {
            let (quota, dealt) = (u64::from(*quota), u64::from(*dealt));
            let is_ahead = dealt * self.all >= quota * self.so_far;
            (!is_ahead).then(|| (((dealt + 1) * self.all).div_ceil(quota), arm))
        };
        let (_, arm) = self.quotas.iter().zip(&self.dealt).enumerate().filter_map(turn).min()?;
        *self.dealt.get_mut(arm)? += 1;
        Some(arm)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn a_draw_returns_each_person_once_and_stops_after_the_last() {
        let mut people: Vec<u32> = (0..1_000).collect();
        let drawn: Vec<u32> = RandomDraw::new(&mut people, 7).collect();
        assert_eq!((drawn.len(), drawn.iter().collect::<BTreeSet<_>>().len()), (1_000, 1_000));
        let mut again: Vec<u32> = (0..1_000).collect();
        assert_eq!(
            RandomDraw::new(&mut again, 7).take(50).collect::<Vec<_>>(),
            drawn.iter().copied().take(50).collect::<Vec<_>>()
        );
        assert_ne!(
            RandomDraw::new(&mut again, 8).take(50).collect::<Vec<_>>(),
            drawn.iter().copied().take(50).collect::<Vec<_>>()
        );
        assert_eq!(RandomDraw::new(&mut [0_u8; 0], 7).next(), None);
    }

    #[test]
    fn every_person_and_every_pair_is_equally_likely_to_be_drawn() {
        const TIMES: u64 = 60_000;
        let (mut singles, mut pairs) = (BTreeMap::<u8, u64>::new(), BTreeMap::<(u8, u8), u64>::new());
        for seed in 0..TIMES {
            let mut people = [0_u8, 1, 2, 3, 4, 5];
            let mut drawn: Vec<u8> = RandomDraw::new(&mut people, random::finish(seed)).take(2).collect();
            drawn.sort_unstable();
            drawn.iter().for_each(|one| *singles.entry(*one).or_default() += 1);
            if let [a, b] = drawn[..] {
                *pairs.entry((a, b)).or_default() += 1;
            }
        }
        // χ² with 5 and 14 degrees of freedom: one seed in a thousand exceeds these bounds.
        let chi = |counts: Vec<u64>, expected: f64| {
            counts.into_iter().map(|n| (n as f64 - expected).powi(2) / expected).sum::<f64>()
        };
        assert_eq!((singles.len(), pairs.len()), (6, 15));
        assert!(chi(singles.into_values().collect(), TIMES as f64 / 3.0) < 20.5);
        assert!(chi(pairs.into_values().collect(), TIMES as f64 / 15.0) < 36.1);
    }

    #[test]
    fn each_arm_gets_exactly_its_quota_and_none_is_dealt_ahead_of_its_share() {
        assert_eq!(arm_quotas(&[4_000, 4_000, 2_000], 50_000), [20_000, 20_000, 10_000]);
        assert_eq!(arm_quotas(&[1, 1, 1], 50_000), [16_667, 16_667, 16_666]);
        assert_eq!((arm_quotas(&[0, 0], 5), arm_quotas(&[], 5), arm_quotas(&[7], 5)), (vec![0, 0], vec![], vec![5]));
        assert_eq!(arm_quotas(&[0, 3, 10_000], 7), [0, 0, 7]);
        assert_eq!(
            arm_quotas(&[u32::MAX; 3], u32::MAX).iter().map(|n| u64::from(*n)).sum::<u64>(),
            u64::from(u32::MAX)
        );
        let mut state = 5;
        for _ in 0..2_000 {
            let arms = 1 + draw_below(&mut state, 6) as usize;
            let shares: Vec<u32> = (0..arms).map(|_| draw_below(&mut state, 1_000) as u32).collect();
            let count = draw_below(&mut state, 300) as u32;
            let quotas = arm_quotas(&shares, count);
            let all: u32 = quotas.iter().sum();
            assert!(all == count || shares.iter().all(|share| *share == 0));
            let mut dealt = vec![0_u32; arms];
            for (so_far, arm) in (1_u64..).zip(ArmDealer::new(quotas.clone())) {
                *dealt.get_mut(arm).unwrap() += 1;
                for (quota, dealt) in quotas.iter().zip(&dealt) {
                    let exact = u64::from(*quota) * so_far;
                    let times = u64::from(*dealt) * u64::from(all);
                    assert!(
                        times < exact + u64::from(all) && times + u64::from(all) > exact,
                        "{quotas:?} after {so_far}"
                    );
                }
            }
            assert_eq!(dealt, quotas);
        }
    }
}
