#![expect(clippy::indexing_slicing, reason = "tests")]

use super::*;

fn arm(share: u32, did: u64, of: u64) -> ArmState {
    ArmState { share, control: false, rate: ObservedRate::new(did, of) }
}

fn near(found: &[f64], expected: &[f64], within: f64) {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < within), "{found:?} for {expected:?}");
}

#[test]
fn the_probability_of_being_best_is_exact_where_it_is_known() {
    near(&best_chances(&[ObservedRate::new(5, 100)]), &[1.0], 1e-12);
    near(&best_chances(&[ObservedRate::new(5, 100); 4]), &[0.25; 4], 1e-9);
    // Beta(2, 1) above Beta(1, 1): the integral of 2x · x from 0 to 1.
    near(&best_chances(&[ObservedRate::new(1, 1), ObservedRate::new(0, 0)]), &[2.0 / 3.0, 1.0 / 3.0], 2e-3);
    // Closed form for integer parameters (Miller 2015, "Formulas for Bayesian A/B Testing"), for 20 and 30 of 200.
    near(
        &best_chances(&[ObservedRate::new(20, 200), ObservedRate::new(30, 200)]),
        &[1.0 - closed(21.0, 181.0, 31, 171.0), closed(21.0, 181.0, 31, 171.0)],
        2e-3,
    );
    assert!(best_chances(&[]).is_empty());
}

/// Probability that Beta(c, d) is above Beta(a, b), for an integer c.
fn closed(a: f64, b: f64, c: u32, d: f64) -> f64 {
    use statrs::function::beta::ln_beta;
    (0..c)
        .map(f64::from)
        .map(|i| (ln_beta(a + i, b + d) - (d + i).ln() - ln_beta(1.0 + i, d) - ln_beta(a, b)).exp())
        .sum()
}

#[test]
fn shares_preserve_the_controls_share_the_total_and_the_minimum() {
    let control = ArmState { control: true, ..arm(2_000, 500, 1_000) };
    let arms = [arm(2_500, 10, 1_000), control, arm(2_500, 60, 1_000), arm(0, 9, 10), arm(1_000, 11, 1_000)];
    let chosen = choose_shares(&arms, &BanditOptions::default());
    assert_eq!((chosen[1], chosen[3]), (2_000, 0), "{chosen:?}");
    assert_eq!(chosen.iter().sum::<u32>(), 8_000);
    assert_eq!((chosen[0], chosen[2], chosen[4]), (60, 5_880, 60), "one per cent of 6,000 each, the rest to the best");
    assert_eq!(chosen, choose_shares(&arms, &BanditOptions::default()));
    let even = choose_shares(&[arm(10, 0, 0), arm(20, 0, 0), arm(4, 0, 0)], &BanditOptions { floor: 9_999 });
    assert_eq!(even, [12, 11, 11], "a floor above an even share is an even share");
    assert!(choose_shares(&[], &BanditOptions::default()).is_empty());
    assert_eq!(choose_shares(&[control], &BanditOptions::default()), [2_000]);
}

#[test]
fn narrow_and_wide_posteriors_agree_at_their_boundary() {
    let chosen = best_chances(&[
        ObservedRate::new(20_000, 1_000_000),
        ObservedRate::new(0, 10),
        ObservedRate::new(19_000, 1_000_000),
    ]);
    // Beta(1, 11) is above 0.02 with probability 0.98^11 = 0.8007.
    near(&chosen, &[1.0 - 0.8007, 0.8007, 0.0], 3e-3);
}

#[test]
fn recent_exposures_count_by_their_share_of_expected_conversions() {
    let none = ConversionDelays::new(&[]);
    assert_eq!((none.at(0), none.at(9_999)), (1.0, 1.0));
    // All exposures are old enough: a plain count.
    let due = ConversionDelays::new(&[(100, 0, 50), (100, 1, 25), (100, 9, 25)]);
    near(&[due.at(0), due.at(1), due.at(8), due.at(9), due.at(10)], &[0.5, 0.75, 0.75, 1.0, 1.0], 1e-12);
    let rate = due.effective([(0, 100, 10), (1, 100, 0), (50, 100, 100)]);
    near(&[rate.did, rate.of], &[110.0, 10.0 + 45.0 + 75.0 + 100.0], 1e-9);
    // Half of the conversions come in the first hour, half in the second; half of the exposures are too young to show
    // the latter.
    let cut = ConversionDelays::new(&[(10, 0, 50), (10, 1, 50), (0, 0, 50)]);
    near(&[cut.at(0), cut.at(1)], &[0.5, 1.0], 1e-12);
    // A delay beyond the bound counts at the bound.
    assert!(ConversionDelays::new(&[(9_000, 5_000, 10), (9_000, 0, 10)]).at(DELAY_HOURS - 1) < 0.51);
    // A single delay longer than the age of all others does not change the estimate for them.
    let early = ConversionDelays::new(&[(24, 24, 1), (20, 0, 50), (20, 4, 50)]);
    near(&[early.at(0), early.at(4), early.at(23)], &[0.5, 1.0, 1.0], 0.01);
}
